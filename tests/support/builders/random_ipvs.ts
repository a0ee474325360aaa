/**
 * Random operations on an IPVS table, for property tests. Few addresses, so that they meet.
 *
 * @module
 */
import fc from "fast-check";
import type { IpvsOperation } from "../texts/ipvs_operation.ts";
import {
  markKey,
  type RealServer,
  realServerKey,
  type ServerKey,
  serverKey,
  type VirtualServer,
} from "../../../backends/ipvs/virtual_server.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";

const address = fc.constantFrom("10.96.0.1", "192.0.2.255", "fd00:96::1", "::1", "2001:db8::ff:0")
  .map(parseIpAddress);
const port = fc.constantFrom(0, 1, 53, 443, 65_535);

const key: fc.Arbitrary<ServerKey> = fc.oneof(
  fc.record({
    protocol: fc.constantFrom("TCP" as const, "UDP" as const, "SCTP" as const),
    address,
    port,
  })
    .map(serverKey),
  fc.tuple(fc.constantFrom(1, 7, 0xffff_ffff), fc.boolean()).map(([mark, isIpv6]) =>
    markKey(mark, isIpv6)
  ),
);

const real: fc.Arbitrary<RealServer> = fc.record({
  key: fc.tuple(address, port).map(([address, port]) => realServerKey(address, port)),
  forwarding: fc.constantFrom("masquerade", "route", "tunnel"),
  weight: fc.constantFrom(0, 1, 65_535),
});

const server: fc.Arbitrary<VirtualServer> = fc.record({
  key,
  scheduler: fc.constantFrom("rr", "wrr", "mh", "sh"),
  flags: fc.subarray(["mh-fallback", "mh-port"]),
  persistence: fc.constantFrom(undefined, { persistenceSeconds: 60 }, {
    persistenceSeconds: 10_800,
    persistenceMask: "255.255.255.0",
  }),
  onePacket: fc.constantFrom({}, { isOnePacket: true as const }),
}).map(({ persistence, onePacket, ...rest }) => ({ ...rest, ...persistence, ...onePacket }));

/** Any operation, whether the table would take it or not. */
export const randomIpvsOperation: fc.Arbitrary<IpvsOperation> = fc.oneof(
  fc.record({ kind: fc.constantFrom("addServer", "editServer"), server }),
  fc.record({ kind: fc.constantFrom("addReal", "editReal"), server: key, real }),
  fc.record({ kind: fc.constant("deleteServer"), key }),
  fc.record({ kind: fc.constant("deleteReal"), server: key, key: real.map(({ key }) => key) }),
  fc.constant({ kind: "flush" }),
);
