/**
 * Joins the pools and peers of the configuration with those of LoadBalancerPools and BgpPeers.
 *
 * @module
 */
import * as v from "valibot";
import {
  BGP_PEER,
  type BgpPeerObject,
  LOAD_BALANCER_POOL,
  type LoadBalancerPool,
} from "../api/kinds/routing_objects.ts";
import { type AddressRange, overlap } from "../net/address_range.ts";
import { SortedList } from "../net/sorted_list.ts";
import { byEnd } from "../routing/address_pool.ts";
import type { ConfiguredPeer } from "../routing/routing_settings.ts";
import { collectProblems, type Expect, type ValidationProblem } from "./expectation.ts";
import { parsePeers, parsePools, routingSettingsOf } from "./parse_routing.ts";
import { PEER_SCHEMA, POOL_SCHEMA, type RoutingConfiguration } from "./routing.ts";

/** An object with settings of routing. */
export type RoutingObject = LoadBalancerPool | BgpPeerObject;

/** The objects of both kinds. */
export interface RoutingObjects {
  readonly pools: Iterable<LoadBalancerPool>;
  readonly peers: Iterable<BgpPeerObject>;
}

/** What became of an object. */
export interface ObjectVerdict<Item extends RoutingObject = RoutingObject> {
  readonly object: Item;
  /** The version that is used: the object, its last good version, or none. */
  readonly used: Item | undefined;
  /** The field, and what is wrong with it; absent if the object itself is used. */
  readonly problem?: ValidationProblem;
}

/** The settings of all sources. */
export interface JoinedRouting {
  readonly routing: RoutingConfiguration;
  /** By name of the object. */
  readonly pools: ReadonlyMap<string, ObjectVerdict<LoadBalancerPool>>;
  readonly peers: ReadonlyMap<string, ObjectVerdict<BgpPeerObject>>;
}

/** Most objects of a kind that are used: each is compared with the others. */
const MOST_OBJECTS = 128;
/** A message quotes the value, and goes to a status and a log. */
const LONGEST_MESSAGE = 400;
/** The same limit is in the definition. */
const MOST_RANGES = 64;

/** The condition of an object that is used. */
export const ACCEPTED = "Accepted";

/**
 * Adds what objects ask for to a valid configuration. The configuration comes first, then objects whose
 * status says that they are used, then the oldest ones: what works is not displaced by what is new.
 * An object that cannot be used gets a verdict; its last good version in `former` is used, if it still can.
 */
export function joinRoutingObjects(
  routing: RoutingConfiguration,
  { pools, peers }: RoutingObjects,
  former?: Pick<JoinedRouting, "pools" | "peers">,
): JoinedRouting {
  const known = routingSettingsOf({ ...routing, bgp: { ...routing.bgp, enabled: true } });
  const claims = new Claims();
  for (const { name, ranges } of known.pools) {
    claims.add([poolClaim(name), ...ranges], `pool '${name}' ${FILE}`);
  }
  for (const peer of known.bgp?.peers ?? []) {
    claims.add(peerClaims(peer), `peer '${peer.name}' ${FILE}`);
  }
  const ownPools = choose(
    LOAD_BALANCER_POOL.kind,
    claims,
    pools,
    former?.pools,
    (object, expect) => {
      const pool = parsed(POOL_SCHEMA, object, object.metadata.name, expect);
      if (!pool) return undefined;
      const { length } = pool.addresses;
      const isShort = length <= MOST_RANGES;
      expect(
        isShort,
        "spec.addresses",
        `Expected at most ${MOST_RANGES} ranges, found ${length}`,
      );
      if (!isShort) return undefined;
      const [{ ranges } = { ranges: [] }] = parsePools(
        { ...routing, pools: [pool] },
        within("routing.pools.0", expect),
      );
      expectFree(claims, poolClaim(pool.name), expect);
      for (const [index, range] of ranges.entries()) {
        const other = claims.ownerOf(range);
        expect(
          other === undefined,
          `spec.addresses.${index}`,
          `Expected addresses that no other pool has, found '${pool.addresses[index]}', which ` +
            `overlaps a range of ${other}`,
        );
      }
      return { configuration: pool, claims: [poolClaim(pool.name), ...ranges] };
    },
  );
  const ownPeers = choose(BGP_PEER.kind, claims, peers, former?.peers, (object, expect) => {
    const { metadata: { name } } = object;
    expect(
      !/[_.]/.test(name),
      "metadata.name",
      `Expected small letters, digits and '-', found '${name}'`,
    );
    expect(
      routing.bgp.enabled,
      "spec",
      "Expected BGP on the nodes, which routing.bgp.enabled and --bgp enable, found it disabled",
    );
    const configuration = parsed(PEER_SCHEMA, object, peerNameOf(object), expect);
    if (!configuration) return undefined;
    const [peer] = parsePeers([configuration], within("routing.bgp.peers.0", expect));
    if (!peer) return undefined;
    for (const claim of peerClaims(peer)) expectFree(claims, claim, expect);
    return { configuration, claims: peerClaims(peer) };
  });
  return {
    pools: ownPools.verdicts,
    peers: ownPeers.verdicts,
    routing: {
      ...routing,
      pools: [...routing.pools, ...ownPools.chosen],
      bgp: { ...routing.bgp, peers: [...routing.bgp.peers, ...ownPeers.chosen] },
    },
  };
}

/** A version of an object that can be used. */
interface Candidate<Configuration> {
  readonly configuration: Configuration;
  /** Its names and addresses. */
  readonly claims: readonly Claim[];
}

/** A name, or a range of addresses, that only one object may have. */
type Claim = string | AddressRange;

/** Everything that has an owner. */
class Claims {
  readonly #names = new Map<string, string>();
  readonly #ranges = new SortedList<AddressRange & { readonly owner?: string }>(byEnd);

  add(claims: readonly Claim[], owner: string): void {
    for (const claim of claims) {
      if (typeof claim === "string") this.#names.set(claim, owner);
      else this.#ranges.add({ ...claim, owner });
    }
  }

  delete(claims: readonly Claim[]): void {
    for (const claim of claims) {
      if (typeof claim === "string") this.#names.delete(claim);
      else this.#ranges.delete(claim);
    }
  }

  ownerOf(claim: Claim): string | undefined {
    if (typeof claim === "string") return this.#names.get(claim);
    const found = this.#ranges.items[this.#ranges.indexOf({ ...claim, last: claim.first })];
    return found && overlap(found, claim) ? found.owner : undefined;
  }
}

/**
 * Chooses a version of each object. What is in use is claimed first, so that no new version of another
 * object takes it away.
 */
function choose<Item extends RoutingObject, Configuration extends { readonly name: string }>(
  kind: string,
  claims: Claims,
  objects: Iterable<Item>,
  former: ReadonlyMap<string, ObjectVerdict<Item>> | undefined,
  read: (object: Item, expect: Expect) => Candidate<Configuration> | undefined,
): {
  readonly verdicts: ReadonlyMap<string, ObjectVerdict<Item>>;
  readonly chosen: readonly Configuration[];
} {
  const verdicts = new Map<string, ObjectVerdict<Item>>();
  const chosen = new Map<string, Candidate<Configuration>>();
  const attempt = (name: string, object: Item) => {
    const problems: ValidationProblem[] = [];
    const expect = collectProblems(problems);
    const candidate = read(object, expect);
    if (problems.length > 0 || !candidate) return problems[0];
    claims.add(candidate.claims, `${kind} ${name}`);
    chosen.set(name, candidate);
    return undefined;
  };
  const all = inOrder(objects, former);
  const sorted = all.slice(0, MOST_OBJECTS);
  for (const object of all.slice(MOST_OBJECTS)) {
    const message = `Expected at most ${MOST_OBJECTS} objects of the kind, found ${all.length}`;
    const problem = { path: "metadata.name", message };
    verdicts.set(object.metadata.name, { object, used: undefined, problem });
  }
  for (const object of sorted) {
    const { name } = object.metadata;
    const versions = [isAccepted(object) ? object : undefined, former?.get(name)?.used];
    const used = versions.find((each) => each && !attempt(name, each));
    if (used) verdicts.set(name, { object, used });
  }
  for (const object of sorted) {
    const { name } = object.metadata;
    const used = verdicts.get(name)?.used;
    if (used && hasSameSpec(used, object)) continue;
    const held = chosen.get(name);
    claims.delete(held?.claims ?? []);
    chosen.delete(name);
    const problem = attempt(name, object);
    if (problem && held) {
      claims.add(held.claims, `${kind} ${name}`);
      chosen.set(name, held);
    }
    verdicts.set(name, {
      object,
      used: problem ? used : object,
      ...(problem && { problem: placed(problem) }),
    });
  }
  // Whatever came first: all nodes assign from the pools in the same order.
  const configurations = [...chosen.values()].map(({ configuration }) => configuration)
    .sort((left, right) => left.name < right.name ? -1 : 1);
  return { verdicts, chosen: configurations };
}

const FILE = "of the configuration file, which wins";

/** Whether the status of an object says that this version of it is used. */
export function isAccepted({ metadata: { generation }, status }: RoutingObject): boolean {
  const condition = status?.conditions?.find(({ type }) => type === ACCEPTED);
  return condition?.status === "True" && condition.observedGeneration === generation;
}

/** What is in use comes first, also if it was changed since. */
function inOrder<Item extends RoutingObject>(
  objects: Iterable<Item>,
  former: ReadonlyMap<string, ObjectVerdict<Item>> | undefined,
): readonly Item[] {
  const order = (object: Item) => {
    const { creationTimestamp, name } = object.metadata;
    const rank = isAccepted(object) ? 0 : former?.get(name)?.used ? 1 : 2;
    return `${rank} ${creationTimestamp} ${name}`;
  };
  return [...objects].map((object) => [order(object), object] as const)
    .sort(([left], [right]) => left < right ? -1 : 1).map(([, object]) => object);
}

/** Reads the fields of an object as those of the configuration. */
function parsed<Configuration>(
  schema: v.GenericSchema<unknown, Configuration>,
  { spec }: RoutingObject,
  name: string,
  expect: Expect,
): Configuration | undefined {
  const result = v.safeParse(schema, { ...spec, name });
  for (const { path = [], message } of result.issues ?? []) {
    expect(false, ["spec", ...path.map(({ key }) => String(key))].join("."), message);
  }
  return result.success ? result.output : undefined;
}

/** The name of a BgpPeer among the peers, whose names have no `-`. */
export function peerNameOf({ metadata: { name } }: BgpPeerObject): string {
  return name.replaceAll("-", "_");
}

function poolClaim(name: string): string {
  return `pool '${name}'`;
}

function peerClaims({ name, address, port }: ConfiguredPeer): readonly string[] {
  return [`peer '${name}'`, `peer ${address} port ${port}`];
}

function expectFree(claims: Claims, claim: string, expect: Expect): void {
  const owner = claims.ownerOf(claim);
  const message = `Expected a ${claim} of its own, found ${owner}`;
  expect(owner === undefined, "metadata.name", message);
}

function hasSameSpec(left: RoutingObject, right: RoutingObject): boolean {
  return JSON.stringify(left.spec) === JSON.stringify(right.spec);
}

/** Reports problems of the first item of a list of the configuration as those of an object. */
function within(place: string, expect: Expect): Expect {
  return (right, path, message) =>
    expect(right, path.startsWith(place) ? `spec${path.slice(place.length)}` : path, message);
}

/** Writes a path as the paths of objects are written. */
function placed({ path, message }: ValidationProblem): ValidationProblem {
  const written = path.replace(/^spec\.name$/, "metadata.name").replace(/\.(\d+)(?=\.|$)/g, "[$1]");
  return { path: written, message: message.slice(0, LONGEST_MESSAGE) };
}
