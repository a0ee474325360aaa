import { assertEquals } from "@std/assert";
import type { IpFamily } from "../net/ip_address.ts";
import { missingText, type ProbeResult, supportOf } from "./service_mode.ts";

function result(
  available: boolean,
  { required = true, family }: { required?: boolean; family?: IpFamily } = {},
): ProbeResult {
  return { feature: "thing", available, required, detail: "seen", ...(family && { family }) };
}

Deno.test("supportOf() requires the shared features, and all of one family", () => {
  const cases: readonly [name: string, results: ProbeResult[], families: readonly IpFamily[]][] = [
    ["nothing was asked", [], ["IPv4", "IPv6"]],
    ["a shared thing is missing", [result(false)], []],
    ["a shared thing that is not required", [result(false, { required: false })], ["IPv4", "IPv6"]],
    ["IPv6 lacks something", [result(false, { family: "IPv6" })], ["IPv4"]],
    ["IPv4 lacks something", [result(false, { family: "IPv4" })], ["IPv6"]],
    [
      "both lack something",
      [result(false, { family: "IPv4" }), result(false, { family: "IPv6" })],
      [],
    ],
    [
      "IPv6 lacks what it can do without",
      [result(false, { family: "IPv6", required: false }), result(true, { family: "IPv4" })],
      ["IPv4", "IPv6"],
    ],
  ];
  for (const [name, results, families] of cases) {
    assertEquals(supportOf(results).families, families, name);
  }
});

Deno.test("supportOf() distinguishes required features from optional ones", () => {
  const results = [result(true), result(false), result(false, { required: false })];
  const { missing, reduced } = supportOf(results);
  assertEquals([missing, reduced], [[results[1]!], [results[2]!]]);
});

Deno.test("missingText() names each thing with family, reason and cure", () => {
  const results: ProbeResult[] = [
    { ...result(false, { family: "IPv6" }), cure: "install it" },
    result(false),
  ];
  assertEquals(missingText(results), "thing (IPv6): seen (install it); thing: seen");
});
