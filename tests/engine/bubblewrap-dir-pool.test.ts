import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { describeEngineContract } from "./contract/index.js";

// What touches the disk; the rest does not know which pool it is on.
describeEngineContract("bubblewrap on a dir pool", openBubblewrap("dir"), ["output", "files", "keeping"]);
