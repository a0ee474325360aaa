/** Tests that the image has the packages of all tools. What is built is tested in tests/image. */
import { assertEquals } from "@std/assert";
import { TOOLS } from "../../lib/os/tools.ts";
import { readDeployFile } from "../../tests/support/docs/deploy_files.ts";

/** Packages besides those of tools: image.sh says why. */
const BESIDE_TOOLS = ["bird2", "kmod"];

Deno.test("the image has the Debian package of every tool, BIRD and kmod", async () => {
  const script = await readDeployFile("release/image.sh");
  const packages = /^readonly packages='(.*)'$/m.exec(script)?.[1]?.split(" ");
  const needed = TOOLS.filter(({ kind }) => kind === "system").map((tool) => tool.debianPackage!);
  assertEquals(packages, [...new Set([...needed, ...BESIDE_TOOLS])].toSorted());
});

Deno.test("every system tool names the Debian package from which the image installs it", () => {
  const without = TOOLS.filter(({ kind, debianPackage }) => kind === "system" && !debianPackage);
  assertEquals(without, []);
});
