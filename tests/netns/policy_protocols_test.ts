/** Tests with real packets that NetworkPolicies judge packets without ports, and those of SCTP. */
import { assertEquals } from "@std/assert";
import type { NetworkPolicySpec } from "../../lib/api/kinds/network_policy.ts";
import { caseAddresses } from "../policy/case_addresses.ts";
import { type CasePod, casePods } from "../policy/policy_case.ts";
import { setPod, setPolicy } from "../support/builders/policy_objects.ts";
import { sctpInit } from "../support/builders/sctp_packet.ts";
import { eventually } from "../support/eventually.ts";
import { isMissing, program } from "../support/requirement.ts";
import { loadNftables } from "../support/stages/nftables_tools.ts";
import { PolicyCaseScene } from "../support/stages/policy_case_scene.ts";
import { nodeOf } from "../support/stages/policy_case_topology.ts";
import { POLICY_WIRES } from "../support/stages/policy_wires.ts";

/** The pods of the wire, and one policy for `x/a`. */
async function setUp(
  scene: PolicyCaseScene,
  ingress: NetworkPolicySpec["ingress"],
): Promise<void> {
  await scene.clear();
  for (const key of casePods()) {
    setPod(scene.state, key, {
      address: caseAddresses("IPv4").addressOf(key),
      labels: { pod: key.split("/")[1]! },
      nodeName: nodeOf(key),
    });
  }
  setPolicy(scene.state, "x/p", { podSelector: { matchLabels: { pod: "a" } }, ingress: ingress! });
  await scene.sync();
}

/** An echo request with its checksum. No `ping` is needed. */
const ECHO_REQUEST = { ipProtocol: 1, packet: [8, 0, 0xf7, 0xff, 0, 0, 0, 0] } as const;

/** Sends one raw packet from a pod to `x/a`. */
async function send(
  scene: PolicyCaseScene,
  from: CasePod,
  { ipProtocol, packet }: { readonly ipProtocol: number; readonly packet: readonly number[] },
): Promise<void> {
  const text = packet.map((byte) => `\\x${byte.toString(16).padStart(2, "0")}`).join("");
  const to = caseAddresses("IPv4").addressOf("x/a");
  const line = `printf '${text}' | socat -u - IP4-SENDTO:${to}:${ipProtocol}`;
  await scene.pod(from).output("bash", ["-c", line]);
}

/** Packets that arrived in `x/a` and match, by source. */
async function countArrivals(
  scene: PolicyCaseScene,
  match: string,
): Promise<() => Promise<string>> {
  const rules = OTHERS.map((from) => {
    const address = caseAddresses("IPv4").addressOf(from);
    return `ip saddr ${address} ${match} counter comment "${from}"`;
  });
  await loadNftables(
    scene.pod("x/a"),
    `table ip look\ndelete table ip look\ntable ip look {\n  chain in {\n` +
      `    type filter hook input priority 0\n    ${rules.join("\n    ")}\n  }\n}\n`,
  );
  return async () => {
    const listing = await scene.pod("x/a").output("nft", ["list", "chain", "ip", "look", "in"]);
    const arrived = listing.matchAll(/packets ([1-9]\d*) .*"(.*)"/g);
    return [...arrived].map(([, , from]) => from).join();
  };
}

/** One on the same bridge, one routed on the node, one on the other node. */
const OTHERS = ["x/b", "y/b", "z/c"] as const;

async function checkEchoRequests(scene: PolicyCaseScene): Promise<void> {
  const arrivals = await countArrivals(scene, "icmp type echo-request");
  await setUp(scene, [{ ports: [{}, { protocol: "UDP" }] }]);
  for (const from of OTHERS) await send(scene, from, ECHO_REQUEST);
  assertEquals(await arrivals(), "");
  await setUp(scene, [{}]);
  for (const from of OTHERS) await send(scene, from, ECHO_REQUEST);
  await eventually("requests arrive", async () => await arrivals() === OTHERS.join());
}

async function checkSctp(scene: PolicyCaseScene): Promise<void> {
  const arrivals = await countArrivals(scene, "sctp dport 80");
  const packet = { ipProtocol: 132, packet: sctpInit({ from: 40_000, to: 80 }) };
  const ports = [{ port: 80 }, { protocol: "SCTP", port: 81 }];
  await setUp(scene, [{ ports }]);
  for (const from of OTHERS) await send(scene, from, packet);
  assertEquals(await arrivals(), "");
  const from = [{ podSelector: { matchLabels: { pod: "b" } }, namespaceSelector: {} }];
  await setUp(scene, [{ from, ports: [{ protocol: "SCTP" }] }]);
  await send(scene, "z/c", packet);
  for (const from of ["x/b", "y/b"]) await send(scene, from, packet);
  await eventually("what is allowed arrives", async () => await arrivals() === "x/b,y/b");
}

for (const { name, ignore, nodes } of POLICY_WIRES) {
  Deno.test({
    name: `policy by ${name}: packets without ports or of SCTP, with real packets`,
    ignore: ignore || isMissing("raw packets", ["bash", "nft", "socat"].map(program)),
    fn: async (t) => {
      await using scene = await PolicyCaseScene.create(nodes);
      await t.step(
        "an echo request passes only where a rule has no ports",
        () => checkEchoRequests(scene),
      );
      await t.step("packets of SCTP pass by rules for SCTP alone", () => checkSctp(scene));
    },
  });
}
