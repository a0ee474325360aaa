/** Faults of other implementations that the table of cases cannot express. */
import { assertEquals } from "@std/assert";
import { type IpFamily, parseIpAddress } from "../../lib/net/ip_address.ts";
import { parsePort } from "../../lib/net/port.ts";
import { judgeConnection, viewPlan } from "../../lib/policy/judge_connection.ts";
import { PolicyPlanner } from "../../lib/policy/policy_planner.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { IPV4_PLAN, setPod, setPolicy } from "../support/builders/policy_objects.ts";

function stage(family: IpFamily = "IPv4") {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, { ...IPV4_PLAN, family });
  const isAllowed = (from: string, to: string, port?: number) => {
    planner.update();
    return judgeConnection(viewPlan(planner.plan), {
      from: parseIpAddress(from),
      to: parseIpAddress(to),
      ...(port && { transport: { protocol: "TCP", port: parsePort(port) } }),
    }).isAllowed;
  };
  return { state, isAllowed };
}

Deno.test("egress to a named port of any pod does not open the number to other pods", () => {
  const { state, isAllowed } = stage();
  setPod(state, "x/a", { address: "10.1.0.1", ports: { http: 80 } });
  setPod(state, "y/b", { address: "10.2.0.1", ports: { http: 8080 }, nodeName: "n2" });
  setPolicy(state, "x/p", {
    podSelector: {},
    policyTypes: ["Egress"],
    egress: [{ ports: [{ port: "http" }] }],
  });
  assertEquals(isAllowed("10.1.0.1", "10.2.0.1", 8080), true);
  assertEquals(isAllowed("10.1.0.1", "10.2.0.1", 80), false);
  assertEquals(isAllowed("10.1.0.1", "198.51.100.1", 80), false);
});

Deno.test("addresses of one named port are not those of another", () => {
  const { state, isAllowed } = stage();
  setPod(state, "x/a", { address: "10.1.0.1", labels: { app: "a" } });
  setPod(state, "x/b", { address: "10.1.0.2", ports: { http: 80, admin: 81 }, nodeName: "n2" });
  setPod(state, "x/c", { address: "10.1.0.3", ports: { admin: 81 }, nodeName: "n2" });
  setPolicy(state, "x/p", {
    podSelector: { matchLabels: { app: "a" } },
    policyTypes: ["Egress"],
    egress: [{ to: [{ podSelector: {} }], ports: [{ port: "http" }] }],
  });
  assertEquals(isAllowed("10.1.0.1", "10.1.0.2", 80), true);
  for (const [to, port] of [["10.1.0.2", 81], ["10.1.0.3", 81], ["10.1.0.3", 80]] as const) {
    assertEquals(isAllowed("10.1.0.1", to, port), false, `${to} ${port}`);
  }
});

Deno.test("::/0 holds link-local and unique local addresses", () => {
  const { state, isAllowed } = stage("IPv6");
  setPod(state, "x/a", { address: "2001:db8::1" });
  setPolicy(state, "x/p", {
    podSelector: {},
    ingress: [{ from: [{ ipBlock: { cidr: "::/0" } }] }],
  });
  for (const from of ["fe80::1", "fd00::1", "::2", "ffff::1"]) {
    assertEquals(isAllowed(from, "2001:db8::1", 80), true, from);
  }
});

Deno.test("an echo request passes only if a rule has no ports", () => {
  const { state, isAllowed } = stage();
  setPod(state, "x/a", { address: "10.1.0.1" });
  setPolicy(state, "x/p", { podSelector: {}, ingress: [{ ports: [{}] }] });
  assertEquals(isAllowed("10.1.0.2", "10.1.0.1"), false);
  setPolicy(state, "x/p", { podSelector: {}, ingress: [{}] });
  assertEquals(isAllowed("10.1.0.2", "10.1.0.1"), true);
});

Deno.test("a pod of the host's network is no peer: its address is everything on the node", () => {
  const { state, isAllowed } = stage();
  setPod(state, "x/a", { address: "10.1.0.1" });
  setPod(state, "x/host", { address: "192.0.2.1", hostNetwork: true });
  setPolicy(state, "x/p", { podSelector: {}, ingress: [{ from: [{ podSelector: {} }] }] });
  assertEquals(isAllowed("192.0.2.1", "10.1.0.1", 80), false);
});

Deno.test("a pod is isolated as soon as it has an address, before it runs", () => {
  const { state, isAllowed } = stage();
  setPolicy(state, "x/p", { podSelector: {} });
  setPod(state, "x/a", { address: "10.1.0.1", phase: "Pending" });
  assertEquals(isAllowed("10.1.0.2", "10.1.0.1", 80), false);
});

Deno.test("one invalid policy changes nothing for other pods", () => {
  const { state, isAllowed } = stage();
  setPod(state, "x/a", { address: "10.1.0.1", labels: { app: "a" } });
  setPod(state, "x/b", { address: "10.1.0.2", labels: { app: "b" } });
  for (const app of ["a", "b"]) {
    setPolicy(state, `x/${app}`, { podSelector: { matchLabels: { app } }, ingress: [{}] });
  }
  setPolicy(state, "x/a", {
    podSelector: { matchLabels: { app: "a" } },
    unknownFields: ["new"],
    ingress: [{}],
  });
  assertEquals(isAllowed("198.51.100.1", "10.1.0.1", 80), false);
  assertEquals(isAllowed("198.51.100.1", "10.1.0.2", 80), true);
});

Deno.test("each of several named ports of an egress rule is open where a pod has it", () => {
  const { state, isAllowed } = stage();
  setPod(state, "x/a", { address: "10.1.0.1", labels: { app: "a" } });
  setPod(state, "x/b", { address: "10.1.0.2", ports: { http: 80, admin: 81 }, nodeName: "n2" });
  setPolicy(state, "x/p", {
    podSelector: { matchLabels: { app: "a" } },
    policyTypes: ["Egress"],
    egress: [{ to: [{ podSelector: {} }], ports: [{ port: "http" }, { port: "admin" }] }],
  });
  assertEquals([80, 81, 82].map((port) => isAllowed("10.1.0.1", "10.1.0.2", port)), [
    true,
    true,
    false,
  ]);
});

Deno.test("the plan of a family has no address of the other one", () => {
  const state = new PolicyState();
  const planner = new PolicyPlanner(state, IPV4_PLAN);
  setPod(state, "x/a", { address: "10.1.0.1,2001:db8::1" });
  setPod(state, "x/b", { address: "2001:db8::2" });
  planner.update();
  assertEquals<unknown>([...planner.plan.pods.values()].map(({ addresses }) => addresses), [
    ["10.1.0.1"],
  ]);
});
