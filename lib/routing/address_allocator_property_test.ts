/** The allocator in random histories, compared with rules that are applied to the whole state. */
import { assert, assertEquals } from "@std/assert";
import fc from "fast-check";
import {
  addressAt,
  type IpAddress,
  type IpFamily,
  ipFamilyOf,
  parseIpAddress,
} from "../net/ip_address.ts";
import { EVERYTHING, matchesLabels } from "../policy/label_selector.ts";
import type { ServiceKey } from "../proxy/service_port_name.ts";
import { pool } from "../../tests/support/builders/routed_objects.ts";
import { AddressAllocator } from "./address_allocator.ts";
import { type AddressPool, poolOf } from "./address_pool.ts";
import type { AddressRequest } from "./address_request.ts";

const TEAM = {
  text: "team",
  isInvalid: false,
  requirements: [{ key: "team", operator: "In" as const, values: new Set(["web"]) }],
};

/** The pools, the Services and the events of histories. */
interface Setting {
  readonly pools: readonly AddressPool[];
  readonly addresses: readonly IpAddress[];
  readonly namespaces: readonly string[];
  readonly event: fc.Arbitrary<Event>;
}

const WIDE_POOLS: readonly AddressPool[] = [
  pool("small", ["192.0.2.1-192.0.2.2", "192.0.2.9", "2001:db8::1-2001:db8::2"]),
  pool("team", ["198.51.100.1-198.51.100.2"], { namespaceSelector: TEAM }),
  pool("asked", ["203.0.113.1", "2001:db8:1::1"], { autoAssign: false }),
  pool("app", ["203.0.113.7"], {
    serviceSelector: { ...TEAM, requirements: [{ ...TEAM.requirements[0]!, key: "app" }] },
  }),
];
const OUTSIDE = parseIpAddress("198.18.0.1");
/** Most steps of an update in these histories. */
const MOST_STEPS = 500;

function addressesOf(pools: readonly AddressPool[]): readonly IpAddress[] {
  return pools.flatMap(({ ranges }) =>
    ranges.flatMap(({ family, first, last }) =>
      Array.from(
        { length: Number(last - first) + 1 },
        (_, index) => addressAt(first + BigInt(index), family),
      )
    )
  );
}

type Terms = AddressRequest["sharing"];

/** A request without what its number gives. */
type Requests = Omit<AddressRequest, "key" | "namespace" | "createdAt">;

/** A request whose absent parts are `undefined`. */
interface RequestParts
  extends Omit<Requests, "pool" | "sharing" | "invalid" | "requested" | "hostnames"> {
  readonly requested: IpAddress | null;
  readonly pool: string | undefined;
  readonly sharing: Terms;
  readonly invalid: string | undefined;
}

function requestFrom({ requested, pool, sharing, invalid, ...rest }: RequestParts): Requests {
  return {
    ...rest,
    hostnames: [],
    requested: requested ? { [ipFamilyOf(requested)]: requested } : {},
    ...(pool !== undefined && { pool }),
    ...(sharing && { sharing }),
    ...(invalid !== undefined && { invalid }),
  };
}

type Event =
  | { readonly set: number; readonly request: Requests }
  | { readonly remove: number }
  | { readonly namespace: string; readonly team: string | undefined }
  | { readonly reserved: readonly IpAddress[] };

/** Many kinds of requests, pools and conditions. */
function wideSetting(): Setting {
  const [pools, namespaces] = [WIDE_POOLS, ["red", "blue"]];
  const addresses = addressesOf(pools);
  const request = fc.record<RequestParts>({
    labels: fc.constantFrom({}, {}, { app: "web" }),
    isForeign: fc.integer({ min: 0, max: 9 }).map((number) => number === 0),
    families: fc.constantFrom<readonly IpFamily[]>(
      ["IPv4"],
      ["IPv4"],
      ["IPv6"],
      ["IPv4", "IPv6"],
      [],
    ),
    prefersDualStack: fc.boolean(),
    requested: fc.option(fc.constantFrom(...addresses, OUTSIDE)),
    pool: fc.constantFrom(undefined, undefined, undefined, "asked", "none"),
    sharing: fc.constantFrom<Terms>(undefined, { key: "k", text: "k1" }, { key: "k", text: "k2" }),
    ports: fc.subarray(["TCP/1", "TCP/2", "UDP/1"], { minLength: 1 }),
    current: fc.subarray([...addresses, OUTSIDE], { maxLength: 1 }),
    invalid: fc.constantFrom(undefined, undefined, undefined, undefined, "wrong"),
  }).map(requestFrom);
  const event = fc.oneof(
    { weight: 8, arbitrary: fc.record({ set: fc.nat(8), request }) },
    { weight: 3, arbitrary: fc.record({ remove: fc.nat(8) }) },
    {
      weight: 1,
      arbitrary: fc.record({
        namespace: fc.constantFrom(...namespaces),
        team: fc.constantFrom("web", "db", undefined),
      }),
    },
    {
      weight: 1,
      arbitrary: fc.record({ reserved: fc.subarray([...addresses], { maxLength: 2 }) }),
    },
  );
  return { pools, addresses, namespaces, event };
}

/** Three Services of one namespace and two addresses, so that most events collide. */
function smallSetting(): Setting {
  const pools = [
    pool("auto", ["192.0.2.1"]),
    pool("asked", ["203.0.113.1"], { autoAssign: false }),
  ];
  const addresses = addressesOf(pools);
  const request = fc.record<RequestParts>({
    labels: fc.constant({}),
    isForeign: fc.constant(false),
    families: fc.constant(["IPv4"]),
    prefersDualStack: fc.constant(false),
    requested: fc.option(fc.constantFrom(...addresses)),
    pool: fc.constantFrom(undefined, "asked"),
    sharing: fc.constantFrom<Terms>(undefined, { key: "k", text: "k" }),
    ports: fc.constantFrom(["TCP/1"], ["TCP/2"]),
    current: fc.subarray([...addresses], { maxLength: 1 }),
    invalid: fc.constant(undefined),
  }).map(requestFrom);
  const event = fc.oneof(
    { weight: 6, arbitrary: fc.record({ set: fc.nat(2), request }) },
    { weight: 1, arbitrary: fc.record({ remove: fc.nat(2) }) },
    {
      weight: 1,
      arbitrary: fc.record({ reserved: fc.subarray([...addresses], { maxLength: 1 }) }),
    },
  );
  return { pools, addresses, namespaces: ["red"], event };
}

/** What the events have made of the world, without what the allocator did. */
class World {
  readonly requests = new Map<ServiceKey, AddressRequest>();
  readonly teams = new Map<string, string>();
  reserved: readonly IpAddress[] = [];

  constructor(readonly setting: Setting) {}

  apply(event: Event, allocator: AddressAllocator): void {
    if ("namespace" in event) {
      if (event.team === undefined) this.teams.delete(event.namespace);
      else this.teams.set(event.namespace, event.team);
      this.tellNamespaces(allocator);
    } else if ("reserved" in event) {
      this.reserved = event.reserved;
      this.tellReserved(allocator);
    } else {
      const number = "set" in event ? event.set : event.remove;
      const { namespaces } = this.setting;
      const namespace = namespaces[number % namespaces.length]!;
      const key = `${namespace}/s${number}` as ServiceKey;
      const request = "set" in event
        ? this.#asOfNamespace({ ...event.request, key, namespace, createdAt: `${number % 3}` })
        : undefined;
      if (request) this.requests.set(key, request);
      else this.requests.delete(key);
      allocator.setService(key, request);
    }
  }

  /** Terms of sharing name the namespace. */
  #asOfNamespace(request: AddressRequest): AddressRequest {
    const { sharing, namespace } = request;
    return sharing
      ? { ...request, sharing: { ...sharing, text: `${namespace} ${sharing.text}` } }
      : request;
  }

  tellNamespaces(allocator: AddressAllocator): void {
    for (const name of this.setting.namespaces) {
      const team = this.teams.get(name);
      allocator.setNamespace(name, team === undefined ? undefined : { team });
    }
  }

  tellReserved(allocator: AddressAllocator): void {
    allocator.setNode("n", this.reserved);
  }

  poolAt(address: IpAddress): AddressPool | undefined {
    return poolOf(this.setting.pools, address);
  }

  isPermitted(address: IpAddress, request: AddressRequest): boolean {
    const pool = this.poolAt(address);
    const team = this.teams.get(request.namespace);
    return pool !== undefined && !this.reserved.includes(address) &&
      matchesLabels(pool.serviceSelector ?? EVERYTHING, request.labels) &&
      matchesLabels(pool.namespaceSelector ?? EVERYTHING, team === undefined ? {} : { team });
  }
}

type Held = ReadonlyMap<ServiceKey, readonly IpAddress[]>;

function heldBy(allocator: AddressAllocator, world: World): Held {
  const held = new Map<ServiceKey, IpAddress[]>();
  for (const address of world.setting.addresses) {
    for (const key of allocator.addressUse(address).services) {
      held.getOrInsertComputed(key, () => []).push(address);
    }
  }
  for (const key of held.keys()) assert(world.requests.has(key), `${key} is gone and holds one`);
  return held;
}

function canShare(left: AddressRequest, right: AddressRequest): boolean {
  return left.sharing !== undefined && left.namespace === right.namespace &&
    left.sharing.text === right.sharing?.text &&
    !left.ports.some((port) => right.ports.includes(port));
}

function othersAt(address: IpAddress, key: ServiceKey, held: Held): readonly ServiceKey[] {
  return [...held].filter(([other, addresses]) => other !== key && addresses.includes(address))
    .map(([other]) => other);
}

/** Each held address is permitted, of a requested family, and shared only by rule. */
function checkValid(world: World, held: Held): void {
  for (const [key, addresses] of held) {
    const request = world.requests.get(key)!;
    assert(!request.isForeign, `${key} is of another class`);
    assertEquals(new Set(addresses.map(ipFamilyOf)).size, addresses.length, "one of each family");
    for (const address of addresses) {
      assert(request.families.includes(ipFamilyOf(address)), `${key} has no such family`);
      assert(world.isPermitted(address, request), `${key} may not have ${address}`);
      for (const other of othersAt(address, key, held)) {
        assert(canShare(request, world.requests.get(other)!), `${key} and ${other} clash`);
      }
    }
  }
}

function isForeignStatus({ current }: AddressRequest, world: World): boolean {
  return current.some((address) => !world.poolAt(address));
}

/** The addresses that a claim asks for. */
function wantedBy(
  request: AddressRequest,
  family: IpFamily,
  world: World,
): readonly IpAddress[] {
  const requested = request.requested[family];
  if (requested !== undefined) return [requested];
  return world.setting.addresses.filter((address) => {
    const { name, autoAssign } = world.poolAt(address)!;
    return ipFamilyOf(address) === family &&
      (request.pool === undefined ? autoAssign : name === request.pool);
  });
}

/** No Service waits while an address that would do is free or can be shared. */
function checkWaiting(world: World, held: Held): void {
  const foreign = [...world.requests.values()].flatMap((each) =>
    each.isForeign ? each.current : []
  );
  for (const [key, request] of world.requests) {
    if (request.isForeign || request.invalid !== undefined || isForeignStatus(request, world)) {
      continue;
    }
    for (const family of request.families) {
      const wanted = wantedBy(request, family, world);
      const own = held.get(key)?.find((address) => ipFamilyOf(address) === family);
      const isContent = request.requested[family] === undefined && request.pool === undefined
        ? own !== undefined
        : own !== undefined && wanted.includes(own);
      if (isContent) continue;
      const available = wanted.filter((address) =>
        world.isPermitted(address, request) && !foreign.includes(address) &&
        othersAt(address, key, held).every((other) => canShare(request, world.requests.get(other)!))
      );
      assertEquals(available, [], `${key} waits for ${family}`);
    }
  }
}

/** A Service is refused something if, and only if, it lacks what it asks for. */
function checkRefusals(world: World, allocator: AddressAllocator): void {
  for (const [key, request] of world.requests) {
    if (request.isForeign || request.prefersDualStack || isForeignStatus(request, world)) continue;
    const { addresses = [], refusals } = allocator.assignment(key) ?? { refusals: [] };
    const isContent = request.invalid === undefined && request.families.every((family) => {
      const own = addresses.find((address) => ipFamilyOf(address) === family);
      if (own === undefined) return false;
      return request.requested[family] === undefined && request.pool === undefined ||
        wantedBy(request, family, world).includes(own);
    });
    const isUnneeded = request.families.length === 0;
    assertEquals(refusals.length === 0, isContent || isUnneeded, `${key}: ${refusals[0]?.message}`);
  }
}

/** A Service without an event has what it had, or has got what it waited for. */
function checkMoves(
  world: World,
  { before, after, touched }: {
    readonly before: Held;
    readonly after: Held;
    readonly touched: ReadonlySet<ServiceKey>;
  },
): void {
  for (const [key, addresses] of before) {
    const request = world.requests.get(key);
    if (!request || request.isForeign) continue;
    for (const address of addresses) {
      const family = ipFamilyOf(address);
      const now = after.get(key)?.find((each) => ipFamilyOf(each) === family);
      if (now === address || !request.families.includes(family)) continue;
      const isAllowed = world.isPermitted(address, request);
      const wanted = wantedBy(request, family, world);
      const hasBetter = now !== undefined && wanted.includes(now) && !wanted.includes(address);
      // The other one may have moved on later in the same update.
      const isDisplaced = [...othersAt(address, key, before), ...othersAt(address, key, after)]
        .flatMap((other) => world.requests.get(other) ?? [])
        .some((other) => !canShare(request, other));
      assert(
        !isAllowed || hasBetter || touched.has(key) && isDisplaced,
        `${key} moved from ${address} to ${now} without need`,
      );
    }
  }
}

/** A new leader, which knows only the objects, changes nothing. */
function checkRestart(world: World, held: Held): void {
  const allocator = new AddressAllocator(world.setting.pools);
  world.tellReserved(allocator);
  world.tellNamespaces(allocator);
  for (const [key, request] of world.requests) {
    const isLeftAlone = request.isForeign || isForeignStatus(request, world);
    const current = isLeftAlone
      ? [
        ...held.get(key) ?? [],
        ...request.current.filter((each) => request.isForeign || each === OUTSIDE),
      ]
      : held.get(key) ?? [];
    allocator.setService(key, { ...request, current });
  }
  updateOf(allocator);
  assertEquals(sorted(heldBy(allocator, world)), sorted(held));
}

/**
 * A leader ends after it has written the status of some Services. The next one keeps what was
 * written; the others get addresses as new Services do.
 */
function checkLostWrites(
  world: World,
  { held, isWritten }: { readonly held: Held; readonly isWritten: (key: ServiceKey) => boolean },
): void {
  const allocator = new AddressAllocator(world.setting.pools);
  world.tellReserved(allocator);
  world.tellNamespaces(allocator);
  const written = new Map([...held].filter(([key]) => isWritten(key)));
  for (const [key, request] of world.requests) {
    const isLeftAlone = request.isForeign || isForeignStatus(request, world);
    if (isLeftAlone) written.delete(key);
    const current = isLeftAlone ? request.current : written.get(key) ?? [];
    allocator.setService(key, { ...request, current });
  }
  updateOf(allocator);
  const after = heldBy(allocator, world);
  checkValid(world, after);
  checkMoves(world, { before: written, after, touched: new Set() });
  checkWaiting(world, after);
}

function sorted(held: Held): readonly unknown[] {
  return [...held].sort(([left], [right]) => left < right ? -1 : 1);
}

/** As {@linkcode AddressAllocator.update}, but an endless update fails. */
function updateOf(allocator: AddressAllocator): ReadonlySet<ServiceKey> {
  const steps = allocator.updateInSteps();
  for (let count = 0; count < MOST_STEPS; count++) {
    const { done, value } = steps.next();
    if (done) return value;
  }
  throw new Error(`The update has no end after ${MOST_STEPS} steps`);
}

/** Plays a history; `written` are the Services whose status a leader could write before it ended. */
function checkHistory(
  setting: Setting,
  history: readonly (readonly Event[])[],
  written: readonly string[],
): void {
  const world = new World(setting);
  const allocator = new AddressAllocator(setting.pools);
  let before: Held = new Map();
  for (const events of history) {
    for (const each of events) world.apply(each, allocator);
    const looked = updateOf(allocator);
    const after = heldBy(allocator, world);
    checkValid(world, after);
    checkMoves(world, { before, after, touched: looked });
    checkWaiting(world, after);
    checkRefusals(world, allocator);
    checkRestart(world, after);
    checkLostWrites(world, { held: after, isWritten: (key) => written.includes(key.at(-1)!) });
    for (const key of world.requests.keys()) {
      const isSame = String(before.get(key) ?? "") === String(after.get(key) ?? "");
      assert(isSame || looked.has(key), `${key} changed and was not named`);
    }
    before = after;
  }
}

const SETTINGS = [
  { name: "with everything", setting: wideSetting(), runs: 400 },
  { name: "in a small world", setting: smallSetting(), runs: 10_000 },
];

for (const { name, setting, runs } of SETTINGS) {
  Deno.test(`AddressAllocator keeps its rules in any history ${name}, and a restart moves no address`, () => {
    fc.assert(
      fc.property(
        fc.array(fc.array(setting.event, { minLength: 1, maxLength: 4 }), { maxLength: 12 }),
        fc.subarray(["0", "1", "2", "3", "4", "5", "6", "7", "8"]),
        (history, written) => checkHistory(setting, history, written),
      ),
      { numRuns: runs },
    );
  });
}
