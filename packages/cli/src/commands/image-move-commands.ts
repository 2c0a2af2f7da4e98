import { type Command, Option } from "commander";
import type { DeliverFlags } from "../images/deliver.js";
import { COMPRESSIONS, EXPORT_FORMATS } from "../images/image-host.js";
import type { ExportFlags, ImportFlags, PullFlags, PushFlags } from "../images/move.js";
import { collect, describe } from "./common-options.js";
import { addImageHostOptions, addScratchOption } from "./image-options.js";

const NAME = "its name, with or without a tag, its id, or 12 or more digits of its digest";

function add(image: Command, name: string, summary: string, description: string): Command {
  const command = image
    .command(name)
    .showHelpAfterError(`  Try \`holdfast image ${name} --help\`.`)
    .summary(summary)
    .description(description);
  return addImageHostOptions(addScratchOption(command));
}

const tagOption = (shownDefault: string): Option =>
  describe("-t, --tag <name[:tag]>", "what to call it; may be repeated", shownDefault).argParser(collect);

const compressOption = (shownDefault: string): Option =>
  describe("--compress <how>", "how layers are packed", shownDefault).choices(COMPRESSIONS);

const platformOption = (): Option =>
  describe("--platform <os/arch>", "which one, of an image for several: linux/arm64", "this machine's");

function addLogin(command: Command): Command {
  return command
    .addOption(
      describe("--username <name>", "who to be at the registry", "docker's login on this machine, if it is here"),
    )
    .option("--password-stdin", "read the password from stdin; with --username")
    .option("--plain-http", "speak HTTP without TLS (default: only to this machine itself)");
}

export function addImageMoveCommands(image: Command): void {
  add(
    image,
    "export",
    "write an image to a file or stdout",
    "Writes an image as an OCI layout or a docker archive. The same image gives the same bytes every time. A file is there whole or not at all.",
  )
    .argument("<name>", NAME)
    .addOption(new Option("-o, --output <file>", "where to; - is stdout"))
    .addOption(
      describe(
        "--format <format>",
        "oci: an OCI layout as a tar. docker: the same with what `docker load` reads. oci-directory: not packed, into --output",
        "oci",
      ).choices(EXPORT_FORMATS),
    )
    .addOption(compressOption("none"))
    .action(async (name: string, flags: ExportFlags) => {
      const { exportImages } = await import("../images/move.js");
      await exportImages(name, flags);
    });
  add(
    image,
    "import",
    "take an image from a file or stdin",
    "Takes an image from what `docker save`, skopeo, buildah and podman write: docker archives and OCI layouts, as a tar, packed or not, or a directory. Prints its id.",
  )
    .argument("<file>", "an archive or a directory; - is stdin")
    .addOption(tagOption("what the archive calls it"))
    .addOption(describe("--reference <name>", "which one, of an archive that holds several", "the only one"))
    .addOption(platformOption())
    .option("--json", "print all about it as JSON")
    .action(async (file: string, flags: ImportFlags) => {
      const { importImages } = await import("../images/move.js");
      await importImages(file, flags);
    });
  addLogin(
    add(
      image,
      "pull",
      "fetch an image from a registry",
      "Fetches an image from a registry: what is here already is not fetched, and a pull that was cut goes on where it was. Prints its id.",
    ),
  )
    .argument("<reference>", "such as debian:12 or localhost:5000/team/app:1")
    .addOption(tagOption("what it was asked for as"))
    .addOption(platformOption())
    .option("--json", "print all about it as JSON")
    .action(async (reference: string, flags: PullFlags) => {
      const { pullImages } = await import("../images/move.js");
      await pullImages(reference, flags);
    });
  addLogin(
    add(
      image,
      "push",
      "send an image to a registry",
      "Sends an image to a registry: what is there already is not sent. Prints the digest that it has there.",
    ),
  )
    .argument("<name>", NAME)
    .argument("<reference>", "such as localhost:5000/team/app:1")
    .addOption(compressOption("gzip"))
    .option("--json", "print { reference, digest } as JSON")
    .action(async (name: string, reference: string, flags: PushFlags) => {
      const { pushImages } = await import("../images/move.js");
      await pushImages(name, reference, flags);
    });
  add(
    image,
    "deliver",
    "put an image, as an archive, into a container or a sandbox",
    "Puts an image, as an archive, into a running container of this machine's docker (DOCKER_HOST), or into a sandbox of the server.",
  )
    .argument("<name>", NAME)
    .argument("<target>", "docker://CONTAINER/PATH or sandbox://ID/PATH; a PATH that ends with / is a directory")
    .addOption(describe("--format <format>", "of the archive", "docker").choices(["docker", "oci"]))
    .addOption(compressOption("none"))
    .action(async (name: string, target: string, flags: DeliverFlags) => {
      const { deliver } = await import("../images/deliver.js");
      await deliver(name, target, flags);
    });
}
