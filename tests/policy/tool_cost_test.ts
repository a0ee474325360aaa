/**
 * The cost of the tools for policies in large clusters, as the number of looks at namespaces: each
 * comparison of a selector with a pod is one.
 */
import { assert, assertEquals } from "@std/assert";
import { comparePolicies } from "../../lib/policy/compare_policies.ts";
import { connectionTable } from "../../lib/policy/connection_table.ts";
import { PolicyState } from "../../lib/policy/policy_state.ts";
import { setPod, setPolicy } from "../support/builders/policy_objects.ts";

class CountingState extends PolicyState {
  looks = 0;

  override namespaceLabels(name: string) {
    this.looks++;
    return super.namespaceLabels(name);
  }
}

interface ClusterShape {
  readonly pods: number;
  /** Pods beyond these numbers have the labels of earlier ones. */
  readonly labels: number;
  readonly namespaces?: number;
}

function clusterOf({ pods, labels, namespaces = 1 }: ClusterShape): CountingState {
  const state = new CountingState();
  for (let index = 0; index < pods; index++) {
    setPod(state, `ns-${index % namespaces}/pod-${index}`, {
      address: `10.${index >> 16}.${index >> 8 & 255}.${index & 255}`,
      labels: { app: `app-${index % labels}` },
    });
  }
  return state;
}

/** Lets every pod of a namespace be reached by some pods of it only. */
function restrict(state: PolicyState, namespace: string): void {
  setPolicy(state, `${namespace}/some`, {
    podSelector: {},
    policyTypes: ["Ingress"],
    ingress: [{ from: [{ podSelector: { matchLabels: { app: "app-1" } } }] }],
  });
}

function tableLooks(shape: ClusterShape): number {
  const state = clusterOf(shape);
  restrict(state, "ns-0");
  const { groups, groupsLeftOut } = connectionTable(state, { namespace: "ns-0", family: "IPv4" });
  assert(groups.length > 0 && groups.length + groupsLeftOut <= shape.pods + 1);
  return state.looks;
}

function comparisonLooks(shape: ClusterShape): number {
  const [before, after] = [clusterOf(shape), clusterOf(shape)];
  restrict(after, "ns-0");
  const { changes } = comparePolicies([before, after], "IPv4");
  assert(changes.length > 0);
  return before.looks + after.looks;
}

Deno.test("connectionTable() costs the kinds of pods, not pods times pods", () => {
  assertEquals(tableLooks({ pods: 1_000, labels: 10 }), tableLooks({ pods: 100, labels: 10 }));
});

Deno.test("connectionTable() of 4,000 pods that all differ costs as much as that of 1,000", () => {
  const [few, many] = [1_000, 4_000].map((pods) => tableLooks({ pods, labels: pods }));
  assertEquals(many, few);
});

Deno.test("connectionTable() costs in proportion to pods of other namespaces", () => {
  const looks = (pods: number) => tableLooks({ pods, labels: pods, namespaces: pods / 10 });
  assert(looks(2_000) < 4.5 * looks(500), `${looks(500)}, ${looks(2_000)}`);
});

Deno.test("comparePolicies() costs the kinds of pods, not pods times pods", () => {
  const [few, many] = [1_000, 10_000].map((pods) => comparisonLooks({ pods, labels: 10 }));
  assertEquals(many, few);
});

Deno.test("comparePolicies() of pods that all differ stops at a number of pairs, and counts the rest", () => {
  const [few = NaN, many = NaN] = [1_000, 2_000].map((pods) =>
    comparisonLooks({ pods, labels: pods })
  );
  // Of a pod with itself nothing is compared.
  assert(Math.abs(many - few) < few / 100, `${few}, ${many}`);
  const [before, after] = [1, 2].map(() => clusterOf({ pods: 1_000, labels: 1_000 }));
  restrict(after!, "ns-0");
  // All pairs of 1,000 pods, and both ways to and from what is outside.
  const { groupPairsLeftOut } = comparePolicies([before!, after!], "IPv4");
  assertEquals(groupPairsLeftOut, 1_000 * 1_000 + 2 * 1_000 - 100_000);
});
