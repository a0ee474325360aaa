/** The search for the list of a pod, by the rules that a packet meets. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import {
  addressAt,
  IP_FAMILIES,
  type IpAddress,
  type IpFamily,
} from "../../../lib/net/ip_address.ts";
import type { Direction, PodKey, PodPlan, RuleListId } from "../../../lib/policy/policy_plan.ts";
import { MAX_CHAIN_NAME_LENGTH } from "../../netfilter/iptables/iptables_objects.ts";
import { DIRECTIONS } from "../policy_data_plane.ts";
import { DENIED, DISPATCH, isPolicyChain, type PolicyChain } from "./base_chains.ts";
import { dispatchChains } from "./dispatch_chains.ts";
import { walkConnection } from "../../../tests/support/walk/iptables_policies.ts";

const PREFIXES = { IPv4: 0x0a2a0000n, IPv6: 0xfd00_0010_0042n << 80n } as const;
const OTHER = { IPv4: "198.51.100.1", IPv6: "2001:db8::1" } as const;

/** A pod for each number; the last bits of its address decide its list. */
function podsAt(numbers: Iterable<bigint>, family: IpFamily): ReadonlyMap<PodKey, PodPlan> {
  return new Map([...numbers].map((number) => {
    const [key, list] = [`x/${number}` as PodKey, `list-${number % 7n}` as RuleListId];
    return [key, { key, addresses: [addressAt(number, family)], ingress: list, egress: list }];
  }));
}

/** Returns the last chain that a packet reaches, and the number of rules that it meets. */
function search(chains: readonly PolicyChain[], direction: Direction, address: IpAddress) {
  const byName = new Map(chains.map(({ name, rules }) => [name, rules]));
  const other = OTHER[address.includes(":") ? "IPv6" : "IPv4"] as IpAddress;
  let [reached, met, levels] = ["", 0, 0];
  const texts = {
    chains: {
      get(name: string) {
        if (name === "FORWARD") return [`-g ${DISPATCH[direction]}`];
        [reached, levels] = [name, levels + 1];
        return byName.get(name) ?? [];
      },
    } as unknown as ReadonlyMap<string, readonly string[]>,
    sets: new Map(),
  };
  walkConnection(texts, {
    from: direction === "egress" ? address : other,
    to: direction === "egress" ? other : address,
  }, { onRule: () => met++ });
  return { reached, met, levels };
}

/** Returns the number of lines by which one set of chains becomes the other one. */
function changedLines(before: readonly PolicyChain[], after: readonly PolicyChain[]): number {
  const linesOf = (chains: readonly PolicyChain[]) =>
    new Set(chains.flatMap(({ name, rules }) => [name, ...rules.map((rule) => `${name} ${rule}`)]));
  return linesOf(before).symmetricDifference(linesOf(after)).size;
}

const someNumbers = (family: IpFamily) => {
  const bits = family === "IPv4" ? 32 : 128;
  const number = (from: number) =>
    fc.bigInt(0n, (1n << BigInt(bits - from)) - 1n).map((rest) =>
      from === 0 ? rest : (PREFIXES[family] >> BigInt(bits - from) << BigInt(bits - from)) + rest
    );
  return fc.constantFrom(0, 16, bits - 8)
    .chain((from) => fc.uniqueArray(number(from), { maxLength: 40 }));
};

for (const family of IP_FAMILIES) {
  Deno.test(`dispatchChains() lead each address to its list, and others nowhere (${family})`, () => {
    fc.assert(
      fc.property(someNumbers(family), fc.constantFrom(...DIRECTIONS), (numbers, direction) => {
        const pods = podsAt(numbers, family);
        const chains = dispatchChains(direction, { family, pods });
        assertEquals(new Set(chains.map(({ name }) => name)).size, chains.length);
        for (const { name } of chains) {
          assert(name.length <= MAX_CHAIN_NAME_LENGTH && isPolicyChain(name), name);
        }
        for (const { addresses: [address], ingress: list } of pods.values()) {
          const { reached, levels } = search(chains, direction, address!);
          assertEquals(reached, `KUBE-RELAY-${list}`);
          assert(levels <= 9, `${levels} levels`);
        }
        const other = addressAt(numbers.reduce((sum, each) => sum ^ each, 1n), family);
        if ([...pods.values()].some(({ addresses }) => addresses.includes(other))) return;
        assertEquals(search(chains, direction, other).reached, DENIED[direction]);
      }),
      { numRuns: 100 },
    );
  });

  Deno.test(`dispatchChains() cost a packet a dozen rules, and a pod's event a few lines (${family})`, () => {
    const numbers = Array.from({ length: 110 }, (_, index) => PREFIXES[family] + BigInt(index + 2));
    const pods = podsAt(numbers, family);
    const all = dispatchChains("ingress", { family, pods });
    const met = [...pods.values()].map(({ addresses: [address] }) =>
      search(all, "ingress", address!).met
    );
    // One rule is that of FORWARD.
    assert(met.reduce((sum, each) => sum + each - 1, 0) / met.length <= 12, `${met}`);
    for (const number of numbers) {
      const rest = podsAt(numbers.filter((each) => each !== number), family);
      const lines = changedLines(all, dispatchChains("ingress", { family, pods: rest }));
      assert(lines <= 7, `${lines} lines without ${addressAt(number, family)}`);
    }
  });
}

Deno.test("dispatchChains() do not depend on the order of pods", () => {
  const numbers = Array.from({ length: 40 }, (_, index) => PREFIXES.IPv4 + BigInt(index * 37));
  const [one, other] = [numbers, numbers.toReversed()].map((each) =>
    dispatchChains("egress", { family: "IPv4", pods: podsAt(each, "IPv4") })
  );
  assertEquals(one, other);
});

Deno.test("dispatchChains() compare nothing where addresses share no bits", () => {
  const numbers = [0x0a000001n, 0x0a000005n, 0xc0000201n];
  const [entry, branch] = dispatchChains("egress", {
    family: "IPv4",
    pods: podsAt(numbers, "IPv4"),
  });
  assertEquals(entry?.rules, ["-g KUBE-RELAY-E-00000000-0", "-g KUBE-RELAY-POLICY-NO-EGRESS"]);
  assertEquals(branch?.rules, [
    "-s 10.0.0.1/32 -g KUBE-RELAY-list-4",
    "-s 10.0.0.5/32 -g KUBE-RELAY-list-1",
    "-s 192.0.2.1/32 -g KUBE-RELAY-list-5",
    "-g KUBE-RELAY-POLICY-NO-EGRESS",
  ]);
});
