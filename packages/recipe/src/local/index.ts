/** What reads local files. Needs Node; the main entry loads it when a file is to be read. */
export { type ReadDockerfileOptions, readDockerfile } from "./dockerfile.js";
export { fileBlob } from "./file-blob.js";
export { readLocalDirectory, readLocalFile } from "./local-steps.js";
