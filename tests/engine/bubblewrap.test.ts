import { BubblewrapEngine } from "@holdfast/engine";
import { describeEngineContract } from "./contract/index.js";

describeEngineContract("bubblewrap on a btrfs pool", (stateDirectory) => BubblewrapEngine.open({ stateDirectory, pool: "btrfs" }));
