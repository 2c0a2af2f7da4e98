/** The published SDKs over TLS, with a name for every port of every sandbox. */
import { useServer } from "../helpers/use-server.js";
import { useBashImage } from "./bash-image.js";
import { describeCell, SDK_VERSIONS } from "./cell.js";
import { tables } from "./tables.js";

/** A disk that a test can fill, and looks that a test can wait for. */
const server = useServer({
  tls: true,
  args: ["--sandbox-disk-mb", "768", "--sample-seconds", "1"],
  env: useBashImage(),
});
for (const version of SDK_VERSIONS) describeCell(version, "domain", server, tables);
