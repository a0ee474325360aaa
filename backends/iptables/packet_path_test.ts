import { assertEquals } from "@std/assert";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { ruleText } from "../netfilter/iptables_objects.ts";
import { addressPath, destinationPath, portPath, prefixMatch } from "./packet_path.ts";

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
  for (const [address, path] of paths) assertEquals(addressPath(parseIpAddress(address)), path);
});

Deno.test("destinationPath() goes on with protocol and port", () => {
  const address = parseIpAddress("10.96.0.1");
  assertEquals(destinationPath(address, "UDP", parsePort(53)), "0a600001u0035");
  assertEquals(portPath("SCTP", parsePort(65535)), "sffff");
});

Deno.test("prefixMatch() matches what begins with the prefix", () => {
  const matches = [
    ["", "destination", "IPv4", ""],
    ["0", "destination", "IPv4", "-d 0.0.0.0/4"],
    ["0a6", "destination", "IPv4", "-d 10.96.0.0/12"],
    ["0a600001", "destination", "IPv4", "-d 10.96.0.1"],
    ["0a600001u", "destination", "IPv4", "-d 10.96.0.1 -p udp"],
    ["0a600001t1f", "destination", "IPv4", "-d 10.96.0.1 -m tcp -p tcp --dport 7936:8191"],
    ["0a600001t0050", "destination", "IPv4", "-d 10.96.0.1 -m tcp -p tcp --dport 80"],
    ["fd00017", "destination", "IPv6", "-d fd00:170::/28"],
    ["fd000172003000000000000000000041", "endpoint", "IPv6", "-s fd00:172:30::41"],
    ["0ab4", "endpoint", "IPv4", "-s 10.180.0.0/16"],
    ["u", "port", "IPv4", "-p udp"],
    ["t7", "port", "IPv6", "-m tcp -p tcp --dport 28672:32767"],
  ] as const;
  for (const [prefix, kind, family, text] of matches) {
    assertEquals(ruleText(prefixMatch(prefix, kind, family)), text);
  }
});
