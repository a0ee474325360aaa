import { assert, assertEquals } from "@std/assert";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import type { AnnouncedPrefix, BgpPeer } from "../../../lib/routing/bgp_plan.ts";
import { announced, bgpPeer, bgpPlan } from "../../../tests/support/builders/bgp_plans.ts";
import { atOnce } from "../../netfilter/in_steps.ts";
import { birdConfig } from "./bird_config.ts";

const SECRETS = "/run/secrets.conf";

function configOf(...parameters: Parameters<typeof bgpPlan>) {
  return atOnce(birdConfig(bgpPlan(...parameters), SECRETS));
}

/** A peer that BIRD would refuse, and the reason that users are given. */
const WRONG_PEERS: Readonly<Record<string, readonly [fields: Partial<BgpPeer>, reason: string]>> = {
  "a hold time of 2 s": [
    { holdTimeSeconds: 2 },
    "Cannot use hold time 2 of peer wrong: expected 0 or 3 to 65535 seconds",
  ],
  "a reflector client of another AS": [
    { role: "reflector-client" },
    "Cannot reflect routes to peer wrong with AS 64513: expected the node's AS 64512",
  ],
  "addresses of two families": [
    { localAddress: parseIpAddress("2001:db8::1") },
    "Cannot reach peer wrong at 192.0.2.2 from 2001:db8::1: expected two addresses of one family",
  ],
  "a link-local address": [
    { address: parseIpAddress("fe80::2") },
    "Cannot reach peer wrong at fe80::2: link-local addresses belong to one interface; use another " +
    "address of the peer",
  ],
  "a link-local source address": [
    { address: parseIpAddress("2001:db8::2"), localAddress: parseIpAddress("febf::1") },
    "Cannot reach peer wrong from febf::1: link-local addresses belong to one interface; use " +
    "another address of this node",
  ],
};

for (const [what, [fields, reason]] of Object.entries(WRONG_PEERS)) {
  Deno.test(`birdConfig() leaves out a peer with ${what} and reports it`, () => {
    const peers = [bgpPeer("good", "192.0.2.3"), bgpPeer("wrong", "192.0.2.2", fields)];
    const { text, quarantined } = configOf({ peers });
    assertEquals(quarantined, [{ key: "peer wrong", reason }]);
    assert(text.includes("protocol bgp peer_good {") && !text.includes("wrong"), text);
  });
}

Deno.test("birdConfig() leaves out peers whose name or number of characters BIRD cannot take", () => {
  const names = ["a-b", "1a", "a;", "a\nb", "", "a".repeat(56), "a".repeat(55), "bgp"];
  const { text, quarantined } = configOf({
    peers: names.map((name) => bgpPeer(name, "192.0.2.2")),
  });
  assertEquals(quarantined.map(({ key }) => key), names.slice(0, 6).map((name) => `peer ${name}`));
  assert(text.includes("protocol bgp peer_bgp {"), "keywords are prefixed");
});

Deno.test("birdConfig() leaves out peers that the caller names, with the reason", () => {
  const leftOut = new Map([["tor", "no password"]]);
  const peers = [bgpPeer("tor", "192.0.2.2", { passwordFile: "/x" })];
  const { text, quarantined } = atOnce(birdConfig(bgpPlan({ peers }), SECRETS, leftOut));
  assertEquals(quarantined, [{ key: "peer tor", reason: "no password" }]);
  assert(!text.includes("include"), "no password is needed");
});

/** Prefixes that BIRD would refuse, or that are no communities at all. */
const WRONG_PREFIXES: readonly Partial<AnnouncedPrefix>[] = [
  { communities: ["64512"] },
  { communities: ["64512:65536"] },
  { communities: ["1:2)); } protocol bgp x {"] },
  { communities: ["-1:2"] },
  { largeCommunities: ["1:2"] },
  { largeCommunities: ["1:2:4294967296"] },
];

for (const fields of WRONG_PREFIXES) {
  Deno.test(`birdConfig() leaves out a prefix with ${JSON.stringify(fields)}`, () => {
    const { text, quarantined } = configOf({
      announced: [announced("203.0.113.1/32", fields), announced("203.0.113.2/32")],
    });
    assertEquals(quarantined.map(({ key }) => key), ["prefix 203.0.113.1/32"]);
    assert(text.includes("203.0.113.2/32") && !text.includes("203.0.113.1/32"), text);
  });
}

Deno.test("birdConfig() waits for peers after a start for 15 s, or much less than they wait", () => {
  const wait = (...seconds: readonly number[]) =>
    /graceful restart wait (\d+);/.exec(
      configOf({
        peers: seconds.map((gracefulRestartSeconds, index) =>
          bgpPeer(`p${index}`, "192.0.2.2", { gracefulRestartSeconds })
        ),
      }).text,
    )?.[1];
  assertEquals([wait(), wait(120), wait(120, 40), wait(4)], [undefined, "15", "10", "2"]);
});
