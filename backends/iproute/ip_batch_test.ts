import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import {
  addAddressLine,
  addRouteLine,
  deleteAddressLine,
  deleteRouteLine,
  type IpFailure,
  ipFailure,
  parseBatchFailures,
} from "./ip_batch.ts";

Deno.test("addAddressLine() keeps the address from becoming a source address", () => {
  const v4 = parseIpAddress("10.96.0.1");
  const v6 = parseIpAddress("fd00:96::1");
  assertEquals(addAddressLine(v4), "addr add 10.96.0.1/32 dev lo scope host");
  assertEquals(addAddressLine(v6), "addr add fd00:96::1/128 dev lo nodad preferred_lft 0");
  assertEquals(deleteAddressLine(v4), "addr del 10.96.0.1/32 dev lo");
  assertEquals(deleteAddressLine(v6), "addr del fd00:96::1/128 dev lo");
});

Deno.test("addRouteLine() and deleteRouteLine() name the same route", () => {
  const range = parseCidr("10.96.0.0/12");
  assertEquals(addRouteLine(range), "route add local 10.96.0.0/12 dev lo");
  assertEquals(deleteRouteLine(range), "route del local 10.96.0.0/12 dev lo");
});

const MESSAGES: readonly [string, IpFailure["kind"]][] = [
  ["RTNETLINK answers: File exists", "exists"],
  ["Error: ipv4: Address already assigned.", "exists"],
  ["Error: ipv6: address already assigned.", "exists"],
  ["RTNETLINK answers: Cannot assign requested address", "absent"],
  ["Error: ipv4: Address not found.", "absent"],
  ["Error: ipv6: address not found.", "absent"],
  ["RTNETLINK answers: No such process", "absent"],
  ["RTNETLINK answers: Operation not permitted", "notPermitted"],
  ["RTNETLINK answers: Permission denied", "other"],
  ["Error: IPv6 is disabled on this device.", "other"],
];

for (const [message, kind] of MESSAGES) {
  Deno.test(`ipFailure() takes '${message}' as ${kind}`, () => {
    assertEquals(ipFailure(message), { kind, message });
  });
}

Deno.test("parseBatchFailures() gives each line its own reason", () => {
  const stderr = "Error: ipv4: Address already assigned.\nCommand failed -:1\n" +
    "RTNETLINK answers: No such device\nsecond line\nCommand failed -:12\nCommand failed -:13\n";
  assertEquals([...parseBatchFailures(stderr)], [
    [1, { kind: "exists", message: "Error: ipv4: Address already assigned." }],
    [12, { kind: "other", message: "RTNETLINK answers: No such device; second line" }],
    [13, { kind: "other", message: "ip gave no reason" }],
  ]);
  assertEquals(parseBatchFailures("").size, 0);
});
