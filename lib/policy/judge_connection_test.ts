import { assertEquals } from "@std/assert";
import { IPV4_PLAN, setPod, setPolicy } from "../../tests/support/builders/policy_objects.ts";
import { parseCidr } from "../net/cidr.ts";
import { parseIpAddress } from "../net/ip_address.ts";
import { parsePort } from "../net/port.ts";
import { type Connection, judgeConnection, viewCluster, viewPlan } from "./judge_connection.ts";
import { PolicyPlanner } from "./policy_planner.ts";
import { PolicyState } from "./policy_state.ts";

const ADDRESSES = {
  a: parseIpAddress("10.1.0.1"),
  alsoA: parseIpAddress("10.1.0.9"),
  b: parseIpAddress("10.1.0.2"),
  outside: parseIpAddress("198.51.100.1"),
};

/** `x/a`, isolated both ways but for TCP 80 of `app: web`, and `x/b` of another node. */
function judge(connection: Partial<Connection>) {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, IPV4_PLAN);
  setPod(state, "x/a", { address: "10.1.0.1,10.1.0.9", labels: { app: "db" } });
  setPod(state, "x/b", { address: "10.1.0.2", labels: { app: "web" }, nodeName: "n2" });
  setPolicy(state, "x/p", {
    podSelector: { matchLabels: { app: "db" } },
    policyTypes: ["Ingress", "Egress"],
  });
  setPolicy(state, "x/q", {
    podSelector: { matchLabels: { app: "db" } },
    ingress: [
      { from: [{ ipBlock: { cidr: "203.0.113.0/24" } }] },
      { from: [{ podSelector: { matchLabels: { app: "web" } } }], ports: [{ port: 80 }] },
    ],
  });
  planner.update();
  const transport = { protocol: "TCP", port: parsePort(80) } as const;
  const whole = { from: ADDRESSES.b, to: ADDRESSES.a, transport, ...connection };
  const [plan, cluster] = [viewPlan(planner.plan), viewCluster(state, "IPv4")]
    .map((view) => judgeConnection(view, whole));
  return { plan, cluster };
}

Deno.test("judgeConnection() names the policy and rule that allow, at both ends", () => {
  const ingress = { kind: "allowed", pod: "x/a", policy: "x/q", index: 1 };
  const { plan, cluster } = judge({});
  assertEquals<unknown>(plan, { egress: { kind: "unknown" }, ingress, isAllowed: true });
  const egress = { kind: "not-isolated", pod: "x/b" };
  assertEquals<unknown>(cluster, { egress, ingress, isAllowed: true });
});

Deno.test("judgeConnection() names the policies that isolate where none allows", () => {
  const { plan } = judge({ from: ADDRESSES.a, to: ADDRESSES.outside });
  assertEquals<unknown>(plan, {
    egress: { kind: "denied", pod: "x/a", policies: ["x/p"] },
    ingress: { kind: "unknown" },
    isAllowed: false,
  });
  const { cluster } = judge({ transport: { protocol: "UDP", port: parsePort(80) } });
  assertEquals<unknown>(cluster?.ingress, { kind: "denied", pod: "x/a", policies: ["x/p", "x/q"] });
});

Deno.test("judgeConnection() cuts off an address of a closed range until a pod has it", () => {
  const state = new PolicyState();
  const closedRanges = [parseCidr("10.1.0.0/24")];
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, closedRanges });
  const kindsOf = (connection: Connection) => {
    planner.update();
    const { egress, ingress, isAllowed } = judgeConnection(viewPlan(planner.plan), connection);
    return [egress.kind, ingress.kind, isAllowed];
  };
  const [inwards, outwards] = [
    { from: ADDRESSES.outside, to: ADDRESSES.a },
    { from: ADDRESSES.a, to: ADDRESSES.outside },
  ];
  assertEquals(kindsOf(inwards), ["unknown", "closed", false]);
  assertEquals(kindsOf({ ...inwards, isFromOwnNode: true }), ["unknown", "unknown", true]);
  assertEquals(kindsOf(outwards), ["closed", "unknown", false]);
  setPod(state, "x/a", { address: "10.1.0.1" });
  assertEquals(kindsOf(inwards), ["unknown", "not-isolated", true]);
  assertEquals(kindsOf(outwards), ["not-isolated", "unknown", true]);
});
