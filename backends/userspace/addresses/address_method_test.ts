import { assert, assertEquals } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import {
  type AddressMethod,
  type AddressMethodInput,
  chooseAddressMethod,
  describeAddressMethod,
} from "./address_method.ts";

const usual: AddressMethodInput = {
  mode: "auto",
  permitted: true,
  count: 10,
  rangesKnown: true,
  current: "each",
};

const CASES: readonly [string, Partial<AddressMethodInput>, AddressMethod][] = [
  ["one each for few addresses", {}, "each"],
  ["one each up to 1000", { count: 1_000 }, "each"],
  ["a route for more than 1000", { count: 1_001 }, "anyip"],
  ["the route until there are fewer than 500", { count: 500, current: "anyip" }, "anyip"],
  ["one each again below 500", { count: 499, current: "anyip" }, "each"],
  ["one each while the ranges are unknown", { count: 50_000, rangesKnown: false }, "each"],
  ["one each when asked for, whatever the number", { mode: "each", count: 50_000 }, "each"],
  ["a route when asked for, whatever the number", { mode: "anyip", count: 1 }, "anyip"],
  ["one each for a route without ranges", { mode: "anyip", rangesKnown: false }, "each"],
  ["stand-ins when nothing may be changed", { permitted: false, count: 5_000 }, "standIn"],
  ["stand-ins when asked for", { mode: "none", count: 5_000 }, "standIn"],
  ["one each from stand-ins with the right", { current: "standIn", count: 700 }, "each"],
];

for (const [what, input, expected] of CASES) {
  Deno.test(`chooseAddressMethod() takes ${what}`, () => {
    assertEquals(chooseAddressMethod({ ...usual, ...input }), expected);
  });
}

Deno.test("describeAddressMethod() warns of the addresses that a route opens, and only then", () => {
  const facts = {
    family: "IPv4",
    refusal: undefined,
    ownCount: 3,
    ranges: [parseCidr("10.96.0.0/12")],
  } as const;
  const anyip = describeAddressMethod("anyip", facts);
  assert(anyip.includes("10.96.0.0/12") && anyip.includes("sshd on 0.0.0.0:22"), anyip);
  assert(anyip.includes("NetworkPolicies"), anyip);
  assertEquals(describeAddressMethod("each", facts), "3 IPv4 addresses added to lo, one by one");
});

Deno.test("describeAddressMethod() gives the reason why there are only stand-ins", () => {
  const text = describeAddressMethod("standIn", {
    family: "IPv6",
    refusal: "Operation not permitted",
    ownCount: 0,
    ranges: [],
  });
  assert(text.startsWith("::1 in place of each cluster IP"), text);
  assert(text.endsWith(": Operation not permitted"), text);
});
