import { assert, assertEquals, assertRejects } from "@std/assert";
import { join } from "node:path";
import { bundledPackages, licenseOf, renderLicenses } from "./third_party_licenses.ts";

const CACHE = "/cache/npm/registry.example";

async function makePackage(files: Record<string, string>): Promise<string> {
  const directory = await Deno.makeTempDir();
  for (const [name, text] of Object.entries(files)) {
    await Deno.writeTextFile(join(directory, name), text);
  }
  return directory;
}

Deno.test("bundledPackages() names each package once, by name", () => {
  const packages = bundledPackages([
    `${CACHE}/yaml/2.9.1/dist/index.js`,
    `${CACHE}/@scope/tool/1.0.0/lib/a.js`,
    `${CACHE}/yaml/2.9.1/dist/visit.js`,
    "/home/user/kube-relay/main.ts",
  ]);
  assertEquals(packages, [
    { name: "@scope/tool", version: "1.0.0", directory: `${CACHE}/@scope/tool/1.0.0` },
    { name: "yaml", version: "2.9.1", directory: `${CACHE}/yaml/2.9.1` },
  ]);
});

Deno.test("bundledPackages() counts copies of a version for different peers as one", () => {
  const packages = bundledPackages([`${CACHE}/ws/8.0.0_1/index.js`, `${CACHE}/ws/8.0.0/index.js`]);
  assertEquals(packages.map((found) => found.version), ["8.0.0"]);
});

Deno.test("licenseOf() gives all licence and notice files", async () => {
  const directory = await makePackage({ "LICENSE.md": "Do as you like.\n", NOTICE: "By us.\n" });
  const text = await licenseOf({ name: "a", version: "1.0.0", directory });
  assertEquals(text, "Do as you like.\n\nBy us.");
  await Deno.remove(directory, { recursive: true });
});

Deno.test("licenseOf() falls back to package.json", async () => {
  const directory = await makePackage({ "package.json": '{"license":"MIT","author":"Ann"}' });
  const text = await licenseOf({ name: "a", version: "1.0.0", directory });
  assert(text.includes("names MIT and the author Ann."), text);
  await Deno.remove(directory, { recursive: true });
});

Deno.test("licenseOf() refuses a package that reports nothing", async () => {
  const directory = await makePackage({ "package.json": "{}" });
  await assertRejects(
    () => licenseOf({ name: "a", version: "1.0.0", directory }),
    Error,
    "Cannot tell the licence of npm package a@1.0.0",
  );
  await Deno.remove(directory, { recursive: true });
});

Deno.test("renderLicenses() puts the notices first and heads each package", async () => {
  const directory = await makePackage({ LICENSE: "Free." });
  const text = await renderLicenses("Notices\n", [{ name: "a", version: "1.0.0", directory }]);
  assert(/^Notices\n\n-+\na 1\.0\.0\n-+\n\nFree\.\n$/.test(text), text);
  await Deno.remove(directory, { recursive: true });
});
