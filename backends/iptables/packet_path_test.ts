import { assertEquals } from "@std/assert";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { ruleText } from "../netfilter/iptables/iptables_objects.ts";
import {
  addressPath,
  destinationPath,
  type PathKind,
  portPath,
  prefixLabel,
  prefixMatch,
} from "./packet_path.ts";

/** Hexadecimal digits as digits of two bits; other letters stay. */
function path(text: string): string {
  return text.replaceAll(/[0-9a-f]/g, (digit) => parseInt(digit, 16).toString(4).padStart(2, "0"));
}

Deno.test("addressPath() has all digits of an address", () => {
  const paths = [
    ["10.96.0.1", "0a600001"],
    ["255.255.255.255", "ffffffff"],
    ["::", "0".repeat(32)],
    ["::1", "1".padStart(32, "0")],
    ["fd00::", "fd00" + "0".repeat(28)],
    ["fd00:172:30::41", "fd000172003000000000000000000041"],
    ["1:2:3:4:5:6:7:8", "00010002000300040005000600070008"],
  ] as const;
  for (const [address, hex] of paths) {
    assertEquals(addressPath(parseIpAddress(address)), path(hex));
  }
});

Deno.test("destinationPath() continues with protocol and port", () => {
  const address = parseIpAddress("10.96.0.1");
  assertEquals(destinationPath(address, "UDP", parsePort(53)), path("0a600001u0035"));
  assertEquals(portPath("SCTP", parsePort(65535)), path("sffff"));
});

Deno.test("prefixMatch() matches all paths with the prefix, and prefixLabel() names it", () => {
  const prefixes: readonly (readonly [string, PathKind, IpFamily, string, string])[] = [
    ["", "destination", "IPv4", "", "00000000-0"],
    [path("0"), "destination", "IPv4", "-d 0.0.0.0/4", "00000000-4"],
    [`${path("0a6")}3`, "destination", "IPv4", "-d 10.108.0.0/14", "0a6c0000-14"],
    [path("0a600001"), "destination", "IPv4", "-d 10.96.0.1", "0a600001-32"],
    [path("0a600001u"), "destination", "IPv4", "-d 10.96.0.1 -p udp", "0a600001u0000-0"],
    [
      path("0a600001t1f"),
      "destination",
      "IPv4",
      "-d 10.96.0.1 -m tcp -p tcp --dport 7936:8191",
      "0a600001t1f00-8",
    ],
    [
      path("0a600001t0050"),
      "destination",
      "IPv4",
      "-d 10.96.0.1 -m tcp -p tcp --dport 80",
      "0a600001t0050-16",
    ],
    [
      path("fd00017"),
      "destination",
      "IPv6",
      "-d fd00:170::/28",
      "fd000170000000000000000000000000-28",
    ],
    [path("0ab4"), "endpoint", "IPv4", "-s 10.180.0.0/16", "0ab40000-16"],
    [path("u"), "port", "IPv4", "-p udp", "u0000-0"],
    [path("t7"), "port", "IPv6", "-m tcp -p tcp --dport 28672:32767", "t7000-4"],
  ];
  for (const [prefix, kind, family, text, label] of prefixes) {
    assertEquals(ruleText(prefixMatch(prefix, kind, family)), text);
    assertEquals(prefixLabel(prefix, kind, family), label);
  }
});
