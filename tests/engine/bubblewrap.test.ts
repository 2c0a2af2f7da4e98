import { openBubblewrap } from "../helpers/open-bubblewrap.js";
import { describeEngineContract } from "./contract/index.js";

describeEngineContract("bubblewrap on a btrfs pool", openBubblewrap("btrfs"));
