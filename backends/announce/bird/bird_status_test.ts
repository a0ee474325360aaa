import { assertEquals } from "@std/assert";
import { bgpPeer } from "../../../tests/support/builders/bgp_plans.ts";
import type { BirdLine } from "./bird_control.ts";
import { describeSession, parsePrefixes, parseSessions } from "./bird_status.ts";

/** The lines of a reply as BIRD 2.0.12 prints them: the code applies until the next one. */
function linesOf(reply: string): BirdLine[] {
  let code = 0;
  return reply.split("\n").slice(1, -1).map((line) => {
    const [, digits, text] = /^(\d{4})[- ](.*)$/.exec(line) ?? [];
    if (digits !== undefined) code = Number(digits);
    return { code, text: text ?? line.slice(1) };
  });
}

const PROTOCOLS = linesOf(`
2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     2026-11-24 18:20:25  
1006-
1002-announced4 Static     master4    up     2026-11-24 18:20:25  
1006-  Channel ipv4
     State:          UP
     Routes:         1 imported, 0 exported, 1 preferred
 
1002-peer_tor   BGP        ---        up     2026-11-24 18:20:25  Established   
1006-  Description:    x
   BGP state:          Established
     Neighbor address: 192.0.2.2
     Neighbor AS:      64513
   Channel ipv4
     State:          UP
     Receive limit:  1000
       Action:       disable
     Routes:         4 imported, 2 exported, 4 preferred
     Route change stats:     received   rejected   filtered    ignored   accepted
       Import updates:              9          1          4          0          4
       Import withdraws:            0          0        ---          1          0
 
1002-peer_off   BGP        ---        down   2026-11-24 18:21:13  Automatic shutdown: Route limit exceeded
1006-  BGP state:          Down
     Neighbor address: 192.0.2.3
     Last error:       Automatic shutdown: Route limit exceeded
   Channel ipv4
     State:          DOWN
     Receive limit:  500 [HIT]
       Action:       disable
 
1002-other      BGP        ---        start  2026-11-24 18:21:13  Active        
1006-  BGP state:          Active
 
0000 
`);

const BFD = linesOf(`
1020-liveness:
 IP address                Interface  State      Since         Interval  Timeout
 192.0.2.2                 eth0       Up         2026-11-24 18:20:46    0.300    0.900
0000 
`);

Deno.test("parseSessions() reads the sessions of peers and no other protocol", () => {
  assertEquals(parseSessions(PROTOCOLS, BFD), [
    {
      peer: "tor",
      since: "2026-11-24 18:20:25",
      state: "Established",
      imported: 4,
      exported: 2,
      refusedUpdates: 5,
      limit: 1000,
      isShutDown: false,
      bfd: "Up",
    },
    {
      peer: "off",
      since: "2026-11-24 18:21:13",
      state: "Down",
      lastError: "Automatic shutdown: Route limit exceeded",
      imported: 0,
      exported: 0,
      refusedUpdates: 0,
      limit: 500,
      isShutDown: true,
    },
  ]);
  assertEquals(parseSessions([]), []);
});

Deno.test("parsePrefixes() reads each prefix once, and no next hop", () => {
  const lines = linesOf(`
1007-Table master4:
 198.51.100.0/25      unicast [peer_tor 2026-11-24 18:20:27] * (100) [AS64513i]
 	via 192.0.2.2 on br0
                      unicast [peer_b 2026-11-24 18:20:27] (100) [AS64513i]
 203.0.113.10/32      blackhole [announced4 2026-11-24 18:20:25] * (200)
 2001:db8::/64        blackhole [announced6 2026-11-24 18:20:25] * (200)
0000 
`);
  assertEquals([...parsePrefixes(lines)], ["198.51.100.0/25", "203.0.113.10/32", "2001:db8::/64"]);
});

const BASE = parseSessions(PROTOCOLS)[1]!;
const SINCE = "since 2026-11-24 18:21:13";

/** Sessions as BIRD describes them, and what users read. */
const DESCRIPTIONS: readonly (readonly [
  fields: Partial<typeof BASE>,
  peer: Parameters<typeof bgpPeer>[2],
  words: string,
])[] = [
  [{}, {}, `shut down ${SINCE}: the peer sent more than 500 prefixes`],
  [{ state: "Established" }, {}, `established ${SINCE}`],
  [{ state: "Established", bfd: "Up" }, { bfd: true }, `established ${SINCE}`],
  [{ state: "Established", bfd: "Down" }, { bfd: true }, `established ${SINCE}, BFD is down`],
  [
    { state: "Active", lastError: "Socket: Connection refused" },
    {},
    `trying (Active) ${SINCE}: ` +
    "Socket: Connection refused; the peer runs no BGP daemon on port 179, or does not expect this node",
  ],
  [
    { state: "Idle", lastError: "Error: Hold timer expired" },
    {},
    `trying (Idle) ${SINCE}: ` +
    "Error: Hold timer expired; nothing was received for 90 s: the peer or the network has failed",
  ],
  [
    { state: "Idle", lastError: "Received: Administrative shutdown" },
    {},
    `trying (Idle) ${SINCE}: ` +
    "Received: Administrative shutdown; the administrator of the peer shut the session down",
  ],
  [
    { state: "Idle", lastError: "Received: Bad peer AS" },
    {},
    `trying (Idle) ${SINCE}: ` +
    "Received: Bad peer AS; one side expects another AS; this node expects 64513 of the peer",
  ],
  [{ state: "Idle", lastError: "Something new" }, {}, `trying (Idle) ${SINCE}: Something new`],
];

for (const [fields, peer, words] of DESCRIPTIONS) {
  Deno.test(`describeSession() says '${words}'`, () => {
    const session = { ...BASE, isShutDown: fields.state === undefined, ...fields };
    assertEquals(describeSession(session, bgpPeer("off", "192.0.2.3", peer)), words);
  });
}

Deno.test("describeSession() names likely causes where neither side sees an error", () => {
  const { lastError: _, ...silent } = { ...BASE, isShutDown: false, state: "Connect" };
  assertEquals(
    describeSession(silent, bgpPeer("off", "192.0.2.3")),
    `trying (Connect) ${SINCE}: no answer from 192.0.2.3; a firewall may drop port 179`,
  );
  assertEquals(
    describeSession(silent, bgpPeer("off", "192.0.2.3", { passwordFile: "/x" })),
    `trying (Connect) ${SINCE}: no answer from 192.0.2.3; the passwords may differ, or a firewall ` +
      "may drop port 179",
  );
});
