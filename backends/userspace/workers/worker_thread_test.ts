import { assertEquals } from "@std/assert";
import { parseCidr } from "../../../lib/net/cidr.ts";
import { parseIpAddress } from "../../../lib/net/ip_address.ts";
import { parsePort } from "../../../lib/net/port.ts";
import { type Clock, systemClock } from "../../../lib/os/clock.ts";
import { type Network, systemNetwork } from "../../../lib/os/network.ts";
import { OpenFiles } from "../../../lib/os/open_files.ts";
import { ConnectionJudge } from "../../../lib/policy/connection_judge.ts";
import type { PeerSet, PeerSetId, PolicyPlanChanges } from "../../../lib/policy/policy_plan.ts";
import { testServicePlan } from "../../../tests/support/builders/service_plans.ts";
import { SHARED_SOCKETS_BYTES } from "../own_sockets.ts";
import { WorkerFamily } from "./worker_thread.ts";
import { WorkerLink } from "./worker_link.ts";
import type { WorkerSettings } from "./worker_protocol.ts";
import { createCountMemory } from "../shared_counts.ts";

const FULL: PolicyPlanChanges = {
  ...{ full: true, pods: new Set(), lists: new Set(), peers: new Set(), members: new Map() },
};

/** A judge whose plan is copied in several steps. */
function judgeOfManySets(): ConnectionJudge {
  const judge = new ConnectionJudge();
  const peers = new Map<PeerSetId, PeerSet>();
  for (let index = 0; index < 3; index++) {
    peers.set(`set ${index}` as PeerSetId, { kind: "pods", members: new Map() });
  }
  const plan = {
    closedRanges: [parseCidr("127.0.0.0/8")],
    deny: { action: "drop" } as const,
    ...{ lists: new Map(), pods: new Map(), peers },
  };
  for (const _ of judge.takeInSteps(plan, FULL));
  return judge;
}

Deno.test("WorkerFamily opens no socket before it knows the policies of the start", async () => {
  const turn = Promise.withResolvers<void>();
  let [now, turns] = [0, 0];
  // The first pause is that of the policies.
  const nextTurn = () => turns++ === 0 ? turn.promise : Promise.resolve();
  const clock: Clock = {
    ...systemClock,
    now: () => now += 10,
    yieldToEventLoop: nextTurn,
    nextTurn,
  };
  let listeners = 0;
  const network: Network = {
    ...systemNetwork,
    listenTcp(address) {
      listeners++;
      return systemNetwork.listenTcp({ ...address, port: 0 });
    },
  };
  const settings: WorkerSettings = {
    ...{ family: "IPv4", index: 0, options: { udpTimeoutMs: 1000 }, countsTraffic: false },
    ...{
      openFiles: new OpenFiles().share(1),
      sockets: new SharedArrayBuffer(SHARED_SOCKETS_BYTES),
    },
    ...{ counts: createCountMemory(1024, 1), now: 0, isJudged: true },
  };
  const worker = new WorkerFamily(
    { clock, network, random: () => 0 },
    settings,
    (message) => channel.receive(message),
  );
  const channel = new WorkerLink(
    systemClock,
    (message) => void (message[0] !== "start" && worker.receive(message)),
    () => {},
    () => {},
  );
  const followed = channel.ask({ kind: "follow", update: judgeOfManySets().snapshot() });
  const address = parseIpAddress("127.0.0.1");
  const plan = testServicePlan({ clusterIp: address, to: ["127.0.0.1:1"] });
  const at = { address, port: plan.port, role: "ClusterIP", traffic: "internal", socket: "" };
  const applied = channel.ask({
    kind: "apply",
    commands: [
      { op: "forward", plan },
      {
        op: "open",
        socket: "",
        key: plan.key,
        place: { address, port: parsePort(1) },
        at,
      } as never,
    ],
  });
  await systemClock.sleep(20);
  assertEquals(listeners, 0, "while the policies are copied");
  turn.resolve();
  await Promise.all([followed, applied]);
  assertEquals(listeners, 1);
  await channel.ask({ kind: "close" });
});
