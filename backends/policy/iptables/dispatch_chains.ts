/**
 * The chains that lead from the address of an isolated pod to its list. Pure.
 *
 * They form a radix tree: each level compares two more bits of the address, and levels without a choice
 * are left out. So a packet meets about ten rules among 110 pods, and a pod that comes or goes changes two
 * chains at most. A set of pods for each list would need a rule for each list. The kernel has no map from
 * an address to a chain for iptables.
 *
 * @module
 */
import { type Cidr, hostCidr } from "../../../lib/net/cidr.ts";
import {
  addressAt,
  addressNumber,
  type IpAddress,
  type IpFamily,
} from "../../../lib/net/ip_address.ts";
import { contentId } from "../../../lib/policy/content_id.ts";
import type { Direction, PolicyPlan, RuleListId } from "../../../lib/policy/policy_plan.ts";
import { MAX_CHAIN_NAME_LENGTH, ruleText } from "../../netfilter/iptables/iptables_objects.ts";
import {
  BRANCH_PREFIX,
  DENIED,
  DISPATCH,
  goTo,
  listChainName,
  type PolicyChain,
} from "./base_chains.ts";

/** An address of an isolated pod. */
interface Leaf {
  readonly address: IpAddress;
  readonly number: bigint;
  readonly list: RuleListId;
}

/** The smallest block of whole levels that holds some addresses. */
interface Block {
  readonly network: bigint;
  readonly length: number;
  /** Bits after its length. */
  readonly hostBits: number;
}

/** The position of a chain in the tree; level 0 is the chain at which packets enter it. */
interface Place {
  readonly name: string;
  readonly direction: Direction;
  readonly family: IpFamily;
  readonly level: number;
}

const BITS_PER_LEVEL = 2;
/** So many addresses of a branch stand in the chain above: that halves the number of chains. */
const LEAVES_WITHOUT_CHAIN = 2;
/**
 * nf_tables refuses chains that are 16 levels deep, gotos included (NFT_JUMP_STACK_SIZE), and eight of
 * these are above and below the tree. Addresses in a range of /18 never need more than seven.
 */
const MAX_LEVELS = 7;

/** Returns the chains of a direction, the one at which packets enter first. */
export function dispatchChains(
  direction: Direction,
  { family, pods }: Pick<PolicyPlan, "family" | "pods">,
): readonly PolicyChain[] {
  const leaves = [...pods.values()].flatMap(({ addresses, [direction]: list }) =>
    list === undefined
      ? []
      : addresses.map((address): Leaf => ({ address, number: addressNumber(address), list }))
  ).sort((left, right) => left.number < right.number ? -1 : 1);
  const branches = leaves.length > 0 ? [leaves] : [];
  return chainsFrom(branches, { name: DISPATCH[direction], direction, family, level: 0 });
}

function chainsFrom(branches: readonly Leaf[][], place: Place): readonly PolicyChain[] {
  const { name, direction, family } = place;
  const level = place.level + 1;
  const side = direction === "egress" ? "source" : "destination";
  const rules: string[] = [];
  const below: PolicyChain[] = [];
  const lead = (value: Cidr | undefined, target: string) =>
    rules.push(ruleText({ ...(value && { [side]: { value } }), target: [target], isGoto: true }));
  for (const leaves of branches) {
    if (leaves.length <= LEAVES_WITHOUT_CHAIN) {
      for (const { address, list } of leaves) lead(hostCidr(address), listChainName(list));
      continue;
    }
    const block = blockOf(leaves, family);
    const branch = { name: branchName(block, place), direction, family, level };
    lead(cidrOf(block, family), branch.name);
    below.push(...chainsFrom(branchesOf(leaves, block, level), branch));
  }
  return [{ name, rules: [...rules, goTo(DENIED[direction])] }, ...below];
}

/** Sorted addresses: all share the bits that the first and the last one share. */
function blockOf(leaves: readonly Leaf[], family: IpFamily): Block {
  const [first, last] = [leaves[0]!.number, leaves.at(-1)!.number];
  const differingBits = (first ^ last).toString(2).length;
  const hostBits = Math.ceil(differingBits / BITS_PER_LEVEL) * BITS_PER_LEVEL;
  const network = first >> BigInt(hostBits) << BigInt(hostBits);
  return { network, hostBits, length: (family === "IPv4" ? 32 : 128) - hostBits };
}

function branchesOf(leaves: readonly Leaf[], { hostBits }: Block, level: number): Leaf[][] {
  if (level === MAX_LEVELS) return leaves.map((leaf) => [leaf]);
  const shift = BigInt(hostBits - BITS_PER_LEVEL);
  return [...Map.groupBy(leaves, ({ number }) => number >> shift).values()];
}

/** A block of all addresses is no match: tools do not print it. */
function cidrOf({ network, length }: Block, family: IpFamily): Cidr | undefined {
  return length === 0 ? undefined : `${addressAt(network, family)}/${length}` as Cidr;
}

/** The name holds an IPv4 block in digits. An IPv6 block does not fit into it. */
function branchName({ network, length }: Block, { direction, family }: Place): string {
  const id = family === "IPv4"
    ? `${network.toString(16).padStart(8, "0")}-${length}`
    : contentId(`${network}/${length}`);
  return `${BRANCH_PREFIX[direction]}${id}`.slice(0, MAX_CHAIN_NAME_LENGTH);
}
