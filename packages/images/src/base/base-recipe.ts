/** What is in `base`: Debian 12 with the programs that agents' code expects to find, and the user that it runs as. */
import { existsSync, realpathSync } from "node:fs";
import { dirname, join } from "node:path";

/** Change it when what is below changes: a base that was built before is then built anew, beside the old one. */
export const BASE_VERSION = 1;

/** Says which version a base is. It goes where the base goes, and not into what is made of it. */
export const BASE_LABEL = "dev.holdfast.base";

export const BASE_PACKAGES = [
  "ca-certificates",
  "curl",
  "git",
  "iproute2",
  "less",
  "ncurses-bin",
  "ncurses-term",
  "openssh-client",
  "passwd",
  "procps",
  "python3",
  "python3-pip",
  "python3-venv",
  "sudo",
  "unzip",
  "xz-utils",
] as const;

/** What nobody reads in a sandbox takes a quarter of the space otherwise. */
const LEFT_OUT = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*"];

/**
 * Runs on the host with the new root file system's directory as its argument. The name server is a place-holder: whatever
 * address a program asks, the guest answers.
 */
const FINISH = `set -eu
root=$1
chroot "$root" useradd --create-home --shell /bin/bash --user-group --uid 1000 user
printf 'user ALL=(ALL) NOPASSWD: ALL\\n' > "$root/etc/sudoers.d/user"
chmod 0440 "$root/etc/sudoers.d/user"
ln -s python3 "$root/usr/bin/python"
rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED
printf 'nameserver 127.0.0.1\\n' > "$root/etc/resolv.conf"
printf 'sandbox\\n' > "$root/etc/hostname"
printf '127.0.0.1\\tlocalhost sandbox\\n::1\\tlocalhost ip6-localhost\\n' > "$root/etc/hosts"
mkdir -p "$root/usr/local/lib/node_modules"
`;

const LINK_NPM = `set -eu
for name in npm npx; do ln -s ../lib/node_modules/npm/bin/$name-cli.js "$1/usr/local/bin/$name"; done
chroot "$1" /usr/local/bin/node --version
chroot "$1" /usr/local/bin/npm --version
`;

/** The Node that we run on, with its npm: newer than Debian's, and without the four hundred packages of Debian's npm. */
function findOwnNode(): { readonly node: string; readonly npm: string } | undefined {
  const node = realpathSync(process.execPath);
  const npm = join(dirname(dirname(node)), "lib/node_modules/npm");
  return existsSync(join(npm, "bin/npm-cli.js")) ? { node, npm: realpathSync(npm) } : undefined;
}

/** The arguments of mmdebstrap, which writes the root file system as a tar to its stdout. */
export function baseArguments(options: { readonly mirror: string; readonly securityMirror: string }): string[] {
  const own = findOwnNode();
  const packages = own === undefined ? [...BASE_PACKAGES, "nodejs", "npm"] : BASE_PACKAGES;
  const nodeHooks =
    own === undefined
      ? []
      : [
          `--customize-hook=copy-in ${own.node} /usr/local/bin`,
          `--customize-hook=copy-in ${own.npm} /usr/local/lib/node_modules`,
          `--customize-hook=${LINK_NPM}`,
        ];
  return [
    "--mode=root",
    "--variant=minbase",
    "--format=tar",
    '--aptopt=Acquire::Languages "none"',
    // A mirror that does not answer is given up before whoever waits gives up.
    '--aptopt=Acquire::http::Timeout "15"',
    '--aptopt=Acquire::Retries "2"',
    // What a crash leaves of it is thrown away: nothing of it has to be on the disk before it is whole.
    "--dpkgopt=force-unsafe-io",
    ...LEFT_OUT.map((path) => `--dpkgopt=path-exclude=${path}`),
    `--include=${packages.join(",")}`,
    `--customize-hook=${FINISH}`,
    ...nodeHooks,
    "bookworm",
    "-",
    `deb ${options.mirror} bookworm main`,
    `deb ${options.mirror} bookworm-updates main`,
    `deb ${options.securityMirror} bookworm-security main`,
  ];
}

/** How far mmdebstrap is, by the lines that it writes. */
export const BASE_PHASES: ReadonlyArray<readonly [line: RegExp, phase: string, share: number]> = [
  [/running apt-get update/, "reading Debian's package lists", 0.02],
  [/downloading packages/, "downloading packages", 0.1],
  [/extracting archives/, "unpacking the essential ones", 0.2],
  [/installing essential packages/, "installing the essential ones", 0.25],
  [/installing remaining packages/, "installing the others", 0.4],
  [/running --customize-hook|running special hook/, "adding the user and Node.js", 0.75],
  [/cleaning package lists/, "cleaning up", 0.85],
  [/creating tarball/, "storing it as a layer", 0.9],
];
