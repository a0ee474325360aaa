import { assert, assertEquals } from "@std/assert";
import { tryParseIpAddress } from "../../net/ip_address.ts";
import { checkShape, isServableAddress } from "./manifest_schema.ts";

Deno.test("checkShape() keeps the fields that are read and drops the others", () => {
  const result = checkShape("ServiceCIDR", {
    apiVersion: "networking.k8s.io/v1",
    metadata: { name: "a", managedFields: [{}], resourceVersion: "7" },
    spec: { cidrs: ["10.96.0.0/12"], other: 1 },
    status: {},
  });
  assertEquals(result, {
    checked: { metadata: { name: "a" }, spec: { cidrs: ["10.96.0.0/12"] } },
  });
});

Deno.test("checkShape() names every field that does not fit", () => {
  const result = checkShape("Endpoints", {
    metadata: { name: "a", labels: { x: 1 } },
    subsets: [{ addresses: [{ ip: "10.0.0.1" }, { hostname: "b" }], ports: [{ port: 0 }] }, []],
  });
  assert("issues" in result);
  assertEquals(result.issues.map(({ path, message }) => [path.join("."), message]), [
    ["metadata.labels.x", "has to be text; numbers, true and false need quotes"],
    ["subsets.0.addresses.1.ip", "is missing"],
    ["subsets.0.ports.0.port", "has to be a whole number between 1 and 65535"],
    ["subsets.1", "has to be a mapping of fields"],
  ]);
});

for (const value of [null, undefined, 1, "a", [], [{}]]) {
  Deno.test(`checkShape() refuses ${JSON.stringify(value)} in the place of an object`, () => {
    const result = checkShape("Node", value);
    assert("issues" in result);
    assertEquals(result.issues.map(({ path }) => path), [[]]);
  });
}

const ADDRESSES: readonly { text: string; isServable: boolean }[] = [
  { text: "10.0.0.1", isServable: true },
  { text: "127.0.0.1", isServable: true },
  { text: "fd00::1", isServable: true },
  { text: "::1", isServable: true },
  { text: "fe8::1", isServable: true },
  { text: "ff::1", isServable: true },
  { text: "0.0.0.0", isServable: false },
  { text: "::", isServable: false },
  { text: "169.254.169.254", isServable: false },
  { text: "::ffff:169.254.169.254", isServable: false },
  { text: "169.254.0169.254", isServable: false },
  { text: "224.0.0.1", isServable: false },
  { text: "255.255.255.255", isServable: false },
  { text: "fe80::1", isServable: false },
  { text: "febf::1", isServable: false },
  { text: "ff02::1", isServable: false },
  { text: "web.local", isServable: false },
];

for (const { text, isServable } of ADDRESSES) {
  Deno.test(`isServableAddress() is ${isServable} for ${text}`, () => {
    assertEquals(isServableAddress(tryParseIpAddress(text)), isServable);
  });
}
