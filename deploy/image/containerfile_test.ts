/**
 * Tests that the image contains the programs of the table, and that its build is not interactive.
 *
 * @module
 */
import { assert, assertEquals, assertThrows } from "@std/assert";
import { TOOLS } from "../../lib/os/tools.ts";
import { readDeployFile } from "../../tests/support/docs/deploy_files.ts";

/** Packages that the tools need but Debian's essential packages do not. */
const BESIDE_TOOLS = ["kmod"];

/** One instruction of a Containerfile, its continued lines joined. */
interface Instruction {
  readonly name: string;
  readonly rest: string;
}

const KNOWN = ["FROM", "ARG", "RUN", "COPY", "ENTRYPOINT"];

/** Reads a Containerfile. Throws a SyntaxError for a line that is no instruction we use. */
function parseContainerfile(text: string): Instruction[] {
  const joined = text.replace(/^#.*\n/gm, "").replaceAll(/\\\n\s*/g, "");
  return joined.split("\n").filter((line) => line.trim() !== "").map((line) => {
    const [, name = "", rest = ""] = /^([A-Z]+) (.+)$/.exec(line) ?? [];
    if (!KNOWN.includes(name)) {
      throw new SyntaxError(`Cannot read '${line}': expected one of ${KNOWN.join(", ")}`);
    }
    return { name, rest };
  });
}

async function instructions(name: string): Promise<string[]> {
  return parseContainerfile(await readDeployFile("image/Containerfile"))
    .filter((instruction) => instruction.name === name).map(({ rest }) => rest);
}

Deno.test("the image has the Debian package of every tool, and kmod", async () => {
  const [packages = ""] = (await instructions("ARG"))
    .map((text) => /^PACKAGES="(.*)"$/.exec(text)?.[1]).filter((text) => text !== undefined);
  const needed = TOOLS.filter(({ kind }) => kind === "system").map((tool) => tool.debianPackage!);
  assertEquals(
    packages.split(" "),
    [...new Set([...needed, ...BESIDE_TOOLS])].toSorted(),
    "ARG PACKAGES of deploy/image/Containerfile follows lib/os/tools.ts, sorted",
  );
});

Deno.test("every system tool names the Debian package from which the image installs it", () => {
  const without = TOOLS.filter(({ kind, debianPackage }) => kind === "system" && !debianPackage);
  assertEquals(without, []);
});

Deno.test("the image is Debian 13 without recommendations, and apt asks nothing", async () => {
  assertEquals(await instructions("FROM"), ["debian:13-slim"]);
  const [install = ""] = (await instructions("RUN")).filter((line) => line.includes("apt-get"));
  for (const command of install.split(" && ").filter((line) => line.includes("apt-get"))) {
    assert(command.startsWith("DEBIAN_FRONTEND=noninteractive apt-get "), command);
    if (!command.includes(" install ")) continue;
    assert(command.includes(" -y --no-install-recommends $PACKAGES"), command);
  }
  assert(install.includes("rm -rf /var/lib/apt/lists/*"), install);
});

Deno.test("the image runs kube-relay itself, and unpacks it while it is made", async () => {
  assertEquals(await instructions("ENTRYPOINT"), ['["/usr/local/bin/kube-relay"]']);
  const copied = (await instructions("COPY")).map((line) => line.split(" "));
  assertEquals(copied[0], ["$EXECUTABLE", "/usr/local/bin/kube-relay"]);
  const runs = await instructions("RUN");
  assert(runs.some((line) => line.startsWith("kube-relay --version ")), runs.join("\n"));
});

Deno.test("parseContainerfile() refuses unknown instructions", () => {
  const read = () => parseContainerfile("FROM a\nVOLUME /x\n");
  assertThrows(read, SyntaxError, "Cannot read 'VOLUME /x': expected one of FROM, ARG, RUN");
});
