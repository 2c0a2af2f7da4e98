/** What the image `host` shows of this machine. */

/** Node comes with the host's /usr, if that is where it is installed. */
export const NODE_INSIDE = /^\/(usr|bin)\//.test(process.execPath);
