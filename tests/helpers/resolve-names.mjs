// Makes every name below holdfast.test this machine, in this process: what a wildcard record in DNS does elsewhere.
//   node --import ./tests/helpers/resolve-names.mjs program.mjs
import dns from "node:dns";

const DOMAIN = "holdfast.test";
const lookup = dns.lookup;

dns.lookup = (hostname, options, callback) => {
  const done = typeof options === "function" ? options : callback;
  if (hostname !== DOMAIN && !hostname.endsWith(`.${DOMAIN}`)) return lookup(hostname, options, callback);
  const all = typeof options === "object" && options?.all === true;
  process.nextTick(() => (all ? done(null, [{ address: "127.0.0.1", family: 4 }]) : done(null, "127.0.0.1", 4)));
};
