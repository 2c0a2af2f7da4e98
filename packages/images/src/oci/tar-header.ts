/** Headers of the archives that we write. Nothing in them depends on when or where that was. */
export const TAR_BLOCK = 512;
/** Two empty blocks say that it is over. */
export const TAR_END_BYTES = 2 * TAR_BLOCK;
/** Eleven octal digits; GNU's binary form above. */
const MAX_OCTAL_SIZE = 8 * 1024 ** 3 - 1;

export interface TarHeader {
  /** Plain ASCII of at most 100 bytes; a directory's ends with a slash. */
  readonly name: string;
  readonly sizeBytes: number;
  readonly mode?: number | undefined;
}

export function tarHeader(entry: TarHeader): Buffer {
  const { name, sizeBytes } = entry;
  if (!/^[\x21-\x7e]{1,100}$/.test(name)) throw new Error(`not a name for an archive: ${name}`);
  const isDirectory = name.endsWith("/");
  const block = Buffer.alloc(TAR_BLOCK);
  const octal = (value: number, offset: number, digits: number): void => {
    block.write(value.toString(8).padStart(digits, "0"), offset, digits, "ascii");
  };
  block.write(name, 0, "ascii");
  octal(entry.mode ?? (isDirectory ? 0o755 : 0o644), 100, 7);
  octal(0, 108, 7);
  octal(0, 116, 7);
  if (sizeBytes <= MAX_OCTAL_SIZE) octal(sizeBytes, 124, 11);
  else {
    block.writeUInt8(0x80, 124);
    block.writeBigUInt64BE(BigInt(sizeBytes), 128);
  }
  octal(0, 136, 11);
  block.write("        ", 148, "ascii");
  block.write(isDirectory ? "5" : "0", 156, "ascii");
  block.write("ustar\x0000", 257, "latin1");
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

/** What comes after the content. */
export function tarPadding(sizeBytes: number): Buffer {
  return Buffer.alloc((TAR_BLOCK - (sizeBytes % TAR_BLOCK)) % TAR_BLOCK);
}

/** Of header, content and padding together. */
export function tarEntryBytes(sizeBytes: number): number {
  return TAR_BLOCK + Math.ceil(sizeBytes / TAR_BLOCK) * TAR_BLOCK;
}
