/**
 * The numbers of the guest protocol (docs/guest-protocol.md). `guest/src/wire.h` holds the same numbers for C; a test
 * compares the two files, so change both together.
 */

export const WIRE_VERSION = 1;
export const HEADER_BYTES = 12;
export const MAX_PAYLOAD_BYTES = 262_144;
/** Each output stream keeps its first bytes for good, so that head and tail survive a flood. */
export const KEEP_HEAD_BYTES = 65_536;
export const DEFAULT_KEEP_BYTES = 1_048_576;

export const CHANNEL = { in: 0, out: 1, err: 2 } as const;

export const FRAME = {
  HELLO: 0x01,
  PING: 0x02,
  PONG: 0x03,
  DATA: 0x04,
  EOF: 0x05,
  WINDOW: 0x06,
  RESET: 0x07,
  DONE: 0x08,
  FAIL: 0x09,
  NOTE: 0x0a,

  START: 0x20,
  ATTACH: 0x21,
  SIGNAL: 0x22,
  RESIZE: 0x23,
  COMMANDS: 0x24,
  FORGET: 0x25,
  CONFIGURE: 0x26,
  SHUTDOWN: 0x27,

  STAT: 0x30,
  LIST: 0x31,
  READ: 0x32,
  WRITE: 0x33,
  MKDIR: 0x34,
  MOVE: 0x35,
  REMOVE: 0x36,
  WATCH: 0x37,

  DIAL: 0x40,
  EGRESS: 0x41,
  ACCEPT: 0x42,
  REFUSE: 0x43,
  ANSWER: 0x44,
} as const;

/** Field tags. A tag means the same in every message. */
export const FIELD = {
  VERSION: 1,
  BOOT_NS: 2,
  ERRNO: 3,
  ERRNO_NAME: 4,
  MESSAGE: 5,
  NOTE_KIND: 6,
  WINDOW: 7,
  COUNT: 8,
  CHANNEL: 9,
  OFFSET: 10,
  LENGTH: 11,
  USER: 12,
  PATH: 13,

  COMMAND_ID: 20,
  ARG: 21,
  ENV: 22,
  CWD: 23,
  STDIN: 24,
  PTY_COLS: 25,
  PTY_ROWS: 26,
  TIMEOUT_MS: 27,
  GRACE_MS: 28,
  MEMORY_BYTES: 29,
  PIDS: 30,
  KEEP_BYTES: 31,
  SPILL_BYTES: 32,
  BLOCK: 33,
  TAG: 34,
  OFFSET_OUT: 35,
  OFFSET_ERR: 36,
  SIGNAL: 37,
  WHOLE: 38,
  CPU_MILLIS: 39,
  ORPHAN_MS: 40,

  PID: 50,
  EXIT_KIND: 51,
  EXIT_CODE: 52,
  TIMED_OUT: 53,
  WALL_US: 54,
  USER_US: 55,
  SYS_US: 56,
  MAXRSS_BYTES: 57,
  OUT_BYTES: 58,
  ERR_BYTES: 59,
  HELD: 60,
  START_NS: 61,
  END_NS: 62,

  NAME: 70,
  FILE_TYPE: 71,
  SIZE: 72,
  MODE: 73,
  UID: 74,
  GID: 75,
  OWNER: 76,
  GROUP: 77,
  MTIME_NS: 78,
  LINK_TARGET: 79,
  LINK_RESOLVED: 80,
  TARGET_TYPE: 81,
  TARGET_MODE: 82,
  TARGET_SIZE: 83,
  XATTR: 84,
  DEPTH: 85,
  ATOMIC: 86,
  PARENTS: 87,
  RECURSIVE: 88,
  TO: 89,
  CREATED: 90,
  EVENT: 91,
  PORT: 92,
  CONNECTION: 93,
  ADDRESS: 94,
  QUERY: 95,
  DATAGRAM: 96,
} as const;
export type FieldTag = (typeof FIELD)[keyof typeof FIELD];

export const NOTE = {
  STARTED: 1,
  EXITED: 2,
  GAP: 3,
  COMMAND: 4,
  ENTRY: 5,
  READY: 6,
  EVENT: 7,
  CONNECTED: 8,
  CONNECTION: 9,
  QUERY: 10,
} as const;

export const EXIT_KIND = { EXITED: 0, SIGNALED: 1 } as const;
export const FILE_TYPE = { FILE: 1, DIRECTORY: 2, SYMLINK: 3, OTHER: 4 } as const;
export const WATCH_EVENT = { CREATE: 1, WRITE: 2, REMOVE: 3, RENAME: 4, CHMOD: 5, OVERFLOW: 6 } as const;
