import { assert, assertEquals, assertStringIncludes } from "@std/assert";
import { IPV4_PLAN, setPod, setPolicy } from "../../tests/support/builders/policy_objects.ts";
import { testServicePlan, testSharedPlan } from "../../tests/support/builders/service_plans.ts";
import { FakeClock } from "../../tests/support/fakes/fake_clock.ts";
import { FakeNetwork } from "../../tests/support/fakes/fake_network.ts";
import { MemoryLogger } from "../../tests/support/fakes/memory_logger.ts";
import { parseCidr } from "../../lib/net/cidr.ts";
import { parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { suspectAddresses } from "../../lib/app/policy/connection_cutter.ts";
import { ConnectionJudge } from "../../lib/policy/connection_judge.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { Forwarding } from "./forwarding.ts";
import { serviceAddresses } from "./listeners.ts";
import type { RelayedConnection } from "./policy_gate.ts";

const WEB = "10.1.0.2";
const FRIEND = "10.1.0.3";
const OTHER = "10.1.0.4";
const NODE = "192.0.2.10";
const [AT] = serviceAddresses(testServicePlan(), testSharedPlan());

function relayed(client: string, to: string, more: Partial<RelayedConnection> = {}) {
  const endpoint = { address: parseIpAddress(to), port: parsePort(80) };
  return { protocol: "TCP", client, at: AT!, endpoint, ...more } as const;
}

function gateOf(judge: ConnectionJudge, logger: MemoryLogger, node: readonly string[] = []) {
  const edges = { clock: new FakeClock(), network: new FakeNetwork(), logger };
  const forwarding = new Forwarding(edges, { udpTimeoutMs: 1000, judge });
  const interfaceAddresses = node.map(parseIpAddress);
  forwarding.clients.update({ interfaceAddresses, localTraffic: { kind: "none" } });
  return Object.assign(forwarding.policies!, { counters: forwarding.counters });
}

/** The web accepts its friend only, and neither sends to anyone. */
class Stage {
  readonly state = new PolicyState();
  readonly judge = new ConnectionJudge();
  readonly logger = new MemoryLogger();
  readonly gate = gateOf(this.judge, this.logger, [NODE]);
  readonly #planner = new PolicyPlanner(this.state, {
    ...IPV4_PLAN,
    includesRemotePods: true,
  });

  constructor() {
    setPod(this.state, "default/web", { address: WEB, labels: { app: "web" } });
    setPod(this.state, "default/friend", { address: FRIEND, labels: { app: "friend" } });
    setPod(this.state, "default/other", { address: OTHER });
    this.allow("friend");
  }

  allow(app: string): void {
    setPolicy(this.state, "default/web", {
      podSelector: { matchLabels: { app: "web" } },
      policyTypes: ["Ingress", "Egress"],
      ingress: [{ from: [{ podSelector: { matchLabels: { app } } }] }],
    });
    this.take();
  }

  take(logPerMinute = 0): void {
    const log = { perMinute: logPerMinute, group: 100 };
    const deny = { action: "reject", ...(logPerMinute > 0 && { log }) } as const;
    this.#planner.setOptions({ deny, closedRanges: [] });
    const changes = this.#planner.update();
    for (const _ of this.judge.takeInSteps(this.#planner.plan, changes));
  }

  isAllowed(...ends: Parameters<typeof relayed>): boolean {
    return this.gate.denialOf(relayed(...ends)) === undefined;
  }
}

Deno.test("PolicyGate names the policy by which another node probably denies what it allows", () => {
  const stage = new Stage();
  const to = (address: string) =>
    stage.gate.suspicionOf({ protocol: "TCP", endpoint: relayed(NODE, address).endpoint });
  assertEquals([WEB, FRIEND, "10.9.9.9"].map(to), [undefined, undefined, undefined]);
  setPod(stage.state, "default/web", {
    ...{ address: WEB, labels: { app: "web" }, nodeName: "another" },
  });
  stage.take();
  assertEquals(
    to(WEB),
    "probably denied on the node of the pod, which sees this node as the client: NetworkPolicy " +
      "default/web isolates default/web for ingress, and none of its rules allows it",
  );
  setPolicy(stage.state, "default/web", {
    podSelector: {},
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ ipBlock: { cidr: `${NODE}/32` } }] }],
  });
  stage.take();
  assertEquals(to(WEB), undefined, "its rules admit this node");
});

Deno.test("PolicyGate.denialOf() judges by the client's address and the endpoint, and counts", () => {
  const stage = new Stage();
  assertEquals([stage.isAllowed(FRIEND, WEB), stage.isAllowed(OTHER, WEB)], [true, false]);
  assertEquals(stage.isAllowed(OTHER, FRIEND), true, "an endpoint that nothing isolates");
  assertEquals(stage.isAllowed("198.51.100.7", WEB), false, "a client of outside");
  assertEquals(stage.isAllowed(WEB, FRIEND), false, "the client may not send");
  assertEquals(stage.isAllowed(WEB, WEB), true, "a pod reaches itself");
  assertEquals(stage.isAllowed(OTHER, WEB, { protocol: "UDP" }), false);
  const { tcpDenied, udpDenied } = stage.gate.counters;
  assertEquals([tcpDenied, udpDenied], [3, 1]);
  assertStringIncludes(
    stage.gate.denialOf(relayed(OTHER, WEB)) ?? "",
    "at the receiver: NetworkPolicy default/web isolates default/web for ingress",
  );
  assertEquals(stage.logger.lines, []);
});

Deno.test("PolicyGate.denialOf() always lets a pod and its own node reach each other", () => {
  const stage = new Stage();
  assertEquals([stage.isAllowed(NODE, WEB), stage.isAllowed("127.0.0.1", WEB)], [true, true]);
  assertEquals(stage.isAllowed(AT!.address, WEB), true, "the node has the address of the Service");
  assertEquals(stage.isAllowed(WEB, NODE), true);
});

Deno.test("PolicyGate.denialOf() judges between this node and a pod of another node", () => {
  const stage = new Stage();
  setPod(stage.state, "default/web", { address: WEB, labels: { app: "web" }, nodeName: "n2" });
  stage.take();
  assertEquals([stage.isAllowed(NODE, WEB), stage.isAllowed(WEB, NODE)], [false, false]);
  assertEquals([stage.isAllowed(FRIEND, WEB), stage.isAllowed(OTHER, WEB)], [true, false]);
});

Deno.test("PolicyGate.denialOf() does not take a pod on a loopback address for the node", () => {
  const stage = new Stage();
  setPod(stage.state, "default/other", { address: "127.0.0.9" });
  stage.take();
  assertEquals([stage.isAllowed("127.0.0.9", WEB), stage.isAllowed("127.0.0.8", WEB)], [
    false,
    true,
  ]);
});

Deno.test("PolicyGate.denialOf() denies closed ranges before the first plan, and nothing else", () => {
  const judge = new ConnectionJudge();
  const gate = gateOf(judge, new MemoryLogger());
  assertEquals(gate.denialOf(relayed(OTHER, WEB)), undefined);
  judge.close([parseCidr("10.1.0.0/24")]);
  assert(gate.denialOf(relayed(OTHER, "10.2.0.1"))?.includes("closed until it is one"));
  assertEquals(gate.denialOf(relayed("198.51.100.7", "10.2.0.1")), undefined);
});

Deno.test("PolicyGate logs denials where the configuration wants it", () => {
  const stage = new Stage();
  stage.take(10);
  stage.isAllowed(OTHER, WEB);
  const [line] = stage.logger.lines;
  assertEquals([line?.level, line?.fields.client, line?.fields.endpoint], [
    "warn",
    OTHER,
    `${WEB}:80`,
  ]);
});

Deno.test("PolicyGate.recheck() cuts the connections of some addresses that are denied by now", async () => {
  const stage = new Stage();
  const cut: string[] = [];
  stage.gate.enter(relayed(FRIEND, WEB), () => cut.push("friend to web"));
  stage.gate.enter(relayed(FRIEND, OTHER), () => cut.push("friend to other"));
  const leave = stage.gate.enter(relayed(FRIEND, WEB, { protocol: "UDP" }), () => cut.push("left"));
  leave();
  assertEquals(await stage.gate.recheck([WEB, FRIEND].map(parseIpAddress)), 0);
  stage.allow("none");
  assertEquals(await stage.gate.recheck([parseIpAddress(OTHER)]), 0);
  assertEquals(await stage.gate.recheck([parseIpAddress(WEB)]), 1);
  assertEquals(cut, ["friend to web"]);
});

Deno.test("PolicyGate.enter() cuts what a plan denied while its endpoint was dialled", async () => {
  const stage = new Stage();
  let count = 0;
  assertEquals(stage.isAllowed(FRIEND, WEB), true);
  stage.allow("none");
  stage.gate.enter(relayed(FRIEND, WEB), () => count++);
  assertEquals([count, await stage.gate.recheck([parseIpAddress(WEB)])], [1, 0]);
});

Deno.test("PolicyGate.recheck() cuts what was relayed before the first plan", async () => {
  const planned = new Stage();
  const judge = new ConnectionJudge();
  const gate = gateOf(judge, new MemoryLogger());
  let cut = 0;
  gate.enter(relayed(OTHER, WEB), () => cut++);
  const planner = new PolicyPlanner(planned.state, IPV4_PLAN);
  const changes = planner.update();
  for (const _ of judge.takeInSteps(planner.plan, changes));
  assertEquals([cut, await gate.recheck(suspectAddresses(planner.plan, changes)), cut], [0, 1, 1]);
});
