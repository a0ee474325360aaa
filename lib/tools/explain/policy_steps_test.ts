import { assertEquals } from "@std/assert";
import { explainStage } from "../../../tests/packet_flow/explain_executor.ts";
import { ADDRESSES, THIS_NODE } from "../../../tests/support/builders/address_plan.ts";
import { testEndpointSlice, testService } from "../../../tests/support/builders/builders.ts";
import { setPod, setPolicy } from "../../../tests/support/builders/policy_objects.ts";
import { FakeClock } from "../../../tests/support/fakes/fake_clock.ts";
import { PolicyState } from "../../policy/policy_state.ts";
import { explainEnds } from "./explain_report.ts";
import { explainWithPolicies } from "./policy_steps.ts";

const { IPv4 } = ADDRESSES;

Deno.test("explainWithPolicies() lets an isolated pod reach an endpoint of its own node's network", async () => {
  const slice = (address: string) =>
    testEndpointSlice("api", {
      endpoints: [{ addresses: [address], nodeName: THIS_NODE }],
      ports: [{ port: 6443 }],
    });
  const state = new PolicyState();
  setPod(state, "default/client", { address: IPv4.localPodClient, nodeName: THIS_NODE });
  setPolicy(state, "default/none", { podSelector: {}, policyTypes: ["Egress"] });
  const denied = async (endpoint: string) => {
    const scenario = { name: "api", services: [testService("api")], slices: [slice(endpoint)] };
    const { plan, backend } = explainStage("userspace", scenario, "IPv4");
    const ends = { from: "default/client", to: "ns1/api" };
    const { packets } = await explainWithPolicies(
      state,
      ends,
      (ends) =>
        explainEnds({ clock: new FakeClock() }, ends, {
          mode: "userspace",
          nodeName: THIS_NODE,
          plans: new Map([["IPv4", plan]]),
          nodeAddresses: [IPv4.node],
          services: () => [],
          otherPorts: () => [],
          backend: () => backend,
          quarantined: () => [],
          notAsked: "this is a test",
        }),
    );
    return packets.map(({ policies }) => policies?.isDenied);
  };
  assertEquals(await denied(IPv4.node), [false]);
  assertEquals(await denied(IPv4.localPods[0]), [true]);
});
