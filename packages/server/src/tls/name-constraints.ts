/** What keeps our CA from vouching for anybody else's names, even if its key is stolen. */

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const size = length < 128 ? [length] : length < 256 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), content]);
}

export const NAME_CONSTRAINTS = "2.5.29.30";

/** RFC 5280, 4.2.1.10: the domain and what is below it are permitted, and no IP address at all. */
export function encodeNameConstraints(domain: string): Buffer {
  const SEQUENCE = 0x30;
  const subtree = (name: Buffer) => der(SEQUENCE, name);
  const permitted = der(0xa0, subtree(der(0x82, Buffer.from(domain, "ascii"))));
  // An address and a mask, all zero: every address there is, of version 4 and of version 6.
  const excluded = der(0xa1, subtree(der(0x87, Buffer.alloc(8))), subtree(der(0x87, Buffer.alloc(32))));
  return der(SEQUENCE, permitted, excluded);
}
