import { assert, assertEquals, assertNotEquals } from "@std/assert";
import { integrityOf, type ListedPackage, renderSbom } from "./sbom.ts";

const LOCKED = {
  "yaml@2.9.1": { integrity: "sha512-AAEC" },
  "@scope/tool@1.0.0_peer@2.0.0": { integrity: "sha512-AwQF" },
};
const RELEASE = { version: "1.2.3", deno: "2.0.0", created: new Date(1_000_000) };
const TOOL: ListedPackage = {
  name: "@scope/tool",
  version: "1.0.0",
  license: "MIT",
  integrity: "sha512-AwQF",
};

Deno.test("integrityOf() finds a package of deno.lock, with or without peers", () => {
  assertEquals(integrityOf({ name: "yaml", version: "2.9.1" }, LOCKED), "sha512-AAEC");
  assertEquals(integrityOf({ name: "@scope/tool", version: "1.0.0" }, LOCKED), "sha512-AwQF");
  assertEquals(integrityOf({ name: "yaml", version: "2.9" }, LOCKED), undefined);
});

Deno.test("renderSbom() names kube-relay, Deno and each package with its licence and checksum", () => {
  const { packages, relationships, creationInfo } = JSON.parse(renderSbom(RELEASE, [TOOL]));
  assertEquals(creationInfo.created, "1970-01-01T00:16:40Z");
  const named = packages.map((each: { name: string; versionInfo: string }) =>
    `${each.name} ${each.versionInfo}`
  );
  assertEquals(named, ["kube-relay 1.2.3", "deno 2.0.0", "@scope/tool 1.0.0"]);
  const [, , tool] = packages;
  assertEquals(tool.licenseDeclared, "MIT");
  assertEquals(tool.checksums, [{ algorithm: "SHA512", checksumValue: "030405" }]);
  assertEquals(tool.externalRefs[0].referenceLocator, "pkg:npm/%40scope/tool@1.0.0");
  assertEquals(relationships.length, 3);
});

Deno.test("renderSbom() names each document by its content", () => {
  const namespace = (packages: readonly ListedPackage[]) =>
    JSON.parse(renderSbom(RELEASE, packages)).documentNamespace;
  assertEquals(renderSbom(RELEASE, [TOOL]), renderSbom(RELEASE, [TOOL]));
  assert(namespace([TOOL]).includes("kube-relay-1.2.3-"));
  assertNotEquals(namespace([TOOL]), namespace([]));
});
