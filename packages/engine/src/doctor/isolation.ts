/** What keeps a sandbox apart: namespaces and the filter on system calls. */
import { readKernelText } from "./read-kernel-text.js";
import type { DoctorRow } from "./row.js";

type ReadText = (path: string) => string | undefined;

export function inspectIsolation(read: ReadText = readKernelText): DoctorRow[] {
  return [userNamespaceRow(read), seccompRow(read)];
}

function userNamespaceRow(read: ReadText): DoctorRow {
  const name = "user namespaces";
  const most = read("/proc/sys/user/max_user_namespaces");
  if (most === undefined) {
    const remedy = "The kernel must be built with CONFIG_USER_NS.";
    return { name, state: "missing", by: "the kernel has none", remedy, required: true };
  }
  if (Number(most) < 1) {
    const remedy = "sysctl -w user.max_user_namespaces=10000";
    return { name, state: "missing", by: `user.max_user_namespaces = ${most}`, remedy, required: true };
  }
  // Debian's and Ubuntu's own switches. They bind ordinary users; our launcher makes the namespace as root.
  const restricted = ["kernel/unprivileged_userns_clone=0", "kernel/apparmor_restrict_unprivileged_userns=1"].filter(
    (rule) => {
      const [path, value] = rule.split("=");
      return read(`/proc/sys/${path}`) === value;
    },
  );
  const by = [`up to ${most}`, ...restricted.map((rule) => `${rule.replace("/", ".")}, which does not bind root`)].join(
    "; ",
  );
  return { name, state: "ok", by, required: true };
}

function seccompRow(read: ReadText): DoctorRow {
  const name = "system call filter";
  const actions = read("/proc/sys/kernel/seccomp/actions_avail");
  if (actions?.split(" ").includes("errno") === true) return { name, state: "ok", by: "seccomp", required: true };
  const remedy = "The kernel must be built with CONFIG_SECCOMP_FILTER.";
  return { name, state: "missing", by: "the kernel has no seccomp filters", remedy, required: true };
}
