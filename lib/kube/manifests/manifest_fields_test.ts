import { assertEquals } from "@std/assert";
import { NODE } from "../../api/kinds/node.ts";
import { SERVICE } from "../../api/kinds/service.ts";
import { nearestName, unknownFields } from "./manifest_fields.ts";

Deno.test("unknownFields() looks into lists and leaves unused fields alone", () => {
  const raw = {
    apiVersion: "v1",
    kind: "Service",
    metadata: { name: "a", labels: { anything: "x" } },
    spec: { selector: { app: "a" }, ports: [{ port: 1 }, { prot: 2 }] },
    status: { whatever: 1 },
  };
  assertEquals(unknownFields(SERVICE, raw), [
    { path: ["spec", "ports", 1, "prot"], value: 2, nearest: "port" },
  ]);
});

Deno.test("unknownFields() treats names of Object.prototype as unknown", () => {
  const found = unknownFields(NODE, { constructor: 1, toString: 2 });
  assertEquals(found.map(({ path }) => path[0]), ["constructor", "toString"]);
});

const NEAREST: readonly { name: string; nearest: string | undefined }[] = [
  { name: "port", nearest: "ports" },
  { name: "clusterip", nearest: "clusterIP" },
  { name: "sessionAfinity", nearest: "sessionAffinity" },
  { name: "replicas", nearest: undefined },
  { name: "x".repeat(100_000), nearest: undefined },
];

for (const { name, nearest } of NEAREST) {
  Deno.test(`nearestName() of '${name.slice(0, 20)}' is ${nearest}`, () => {
    assertEquals(nearestName(name, ["ports", "clusterIP", "sessionAffinity"]), nearest);
  });
}
