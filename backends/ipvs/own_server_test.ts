import { assertEquals } from "@std/assert";
import { parseCidr } from "../../lib/net/cidr.ts";
import { type IpAddress, parseIpAddress } from "../../lib/net/ip_address.ts";
import { isOwnServer, type OwnServerOwnership } from "./own_server.ts";

for (const [lost, other] of [["192.0.2.2", "192.0.2.3"], ["fd00:1::2", "fd00:1::3"]] as const) {
  const address = parseIpAddress(lost);
  const all: OwnServerOwnership = {
    noted: { addresses: new Set(), exact: new Set(), nodePorts: new Set(["tcp 30080"]) },
    deviceAddresses: new Set(),
    nodeAddresses: new Set(),
    excludeCidrs: [],
    nodePortAddresses: new Set([address]),
  };
  const server = { protocol: "tcp", address, port: 30_080 } as const;

  Deno.test(`isOwnServer() knows a node port on ${lost}, lost, by two sets together`, () => {
    const { noted } = all;
    const cases = [
      [server, all, true],
      [{ ...server, protocol: "udp" }, all, false],
      [{ ...server, port: 443 }, all, false],
      [{ ...server, address: parseIpAddress(other) }, all, false],
      [server, { ...all, noted: { ...noted, nodePorts: new Set<string>() } }, false],
      [server, { ...all, nodePortAddresses: new Set<IpAddress>() }, false],
      [server, { ...all, excludeCidrs: [parseCidr(`${lost}/8`)] }, false],
    ] as const;
    assertEquals(
      cases.map(([each, ownership]) => isOwnServer(each, ownership)),
      cases.map(([, , isOwn]) => isOwn),
    );
  });
}
