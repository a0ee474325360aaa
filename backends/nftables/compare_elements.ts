import type { DataPlaneDifference } from "../../lib/proxy/data_plane_difference.ts";
import type { ServicePortKey } from "../../lib/proxy/service_port_name.ts";
import type { NftContainer } from "../netfilter/nft/nft_objects.ts";
import type { TableElements } from "../netfilter/nft/table_listing.ts";
import {
  type ContainerName,
  DYNAMIC_CONTAINER,
  type Element,
  type OwnedElement,
} from "./containers.ts";
import type { WantedElement, WantedState } from "./wanted_state.ts";

interface ElementComparisonInput {
  readonly containers: ReadonlyMap<ContainerName, NftContainer>;
  readonly wanted: Pick<WantedState, "elements" | "frontends">;
  readonly found: TableElements;
  /** Keys of numbered chains that are no longer in use. */
  readonly unknown: ReadonlySet<string>;
  /** Only these ServicePorts, and the shared elements. @default {all} */
  readonly keys?: ReadonlySet<ServicePortKey> | undefined;
}

/** A difference, and where it is. */
interface ElementDifference {
  readonly container: ContainerName;
  readonly difference: DataPlaneDifference;
}

/** The differences, and the changes that repair them. */
interface ElementComparison {
  readonly differences: readonly ElementDifference[];
  readonly removed: ReadonlyMap<ContainerName, readonly OwnedElement[]>;
  readonly added: ReadonlyMap<ContainerName, readonly OwnedElement[]>;
}

/** Elements between two pauses: well under a millisecond. */
const SLICE_SIZE = 1_024;
/** Their keys end with the number of an endpoint. */
const NUMBERED: ReadonlySet<ContainerName> = new Set([
  "endpoints",
  "node-port-endpoints",
  "choices",
  "node-port-choices",
]);

/** Compares the elements that were found with the desired ones, in short steps. */
export function* compareElements(
  input: ElementComparisonInput,
): Generator<void, ElementComparison> {
  const differences: ElementDifference[] = [];
  const removed = new Map<ContainerName, OwnedElement[]>();
  const added = new Map<ContainerName, OwnedElement[]>();
  let seen = 0;
  for (const [container, { kind }] of input.containers) {
    if (container === DYNAMIC_CONTAINER) continue;
    const there = input.found.get(container) ?? new Map<string, string>();
    const gone: OwnedElement[] = [];
    const fresh: OwnedElement[] = [];
    const noted: NotedElement[] = [];
    const wanted = input.wanted.elements.get(container) ?? new Map<string, WantedElement>();
    for (const [key, { value, owner }] of wanted) {
      if (++seen % SLICE_SIZE === 0) yield;
      if (input.keys && owner !== undefined && !input.keys.has(owner)) continue;
      const found = there.get(key);
      if (found === value) continue;
      if (found !== undefined) gone.push({ element: { container, key }, owner });
      fresh.push({ element: elementOf(container, key, value), owner });
      noted.push({ key, owner, wanted: value, found });
    }
    for (const [key, found] of there) {
      if (++seen % SLICE_SIZE === 0) yield;
      if (wanted.has(key) || (container === "numbered-chains" && input.unknown.has(key))) continue;
      const owner = input.wanted.frontends.get(frontendOf(container, key));
      if (input.keys && (owner === undefined || !input.keys.has(owner))) continue;
      gone.push({ element: { container, key }, owner });
      noted.push({ key, owner, wanted: undefined, found });
    }
    if (gone.length > 0) removed.set(container, gone);
    if (fresh.length > 0) added.set(container, fresh);
    for (const difference of differencesOf(noted, { container, kind })) {
      differences.push({ container, difference });
    }
  }
  return { differences, removed, added };
}

/** An element that is not as it should be. */
interface NotedElement {
  readonly key: string;
  readonly owner: ServicePortKey | undefined;
  readonly wanted: string | undefined;
  readonly found: string | undefined;
}

interface ContainerTexts {
  readonly container: ContainerName;
  readonly kind: NftContainer["kind"];
}

function differencesOf(
  noted: readonly NotedElement[],
  words: ContainerTexts,
): readonly DataPlaneDifference[] {
  if (!NUMBERED.has(words.container)) return noted.map((each) => differenceOf(each, words));
  const frontends = Map.groupBy(noted, ({ key }) => frontendOf(words.container, key));
  return [...frontends].flatMap(([frontend, group]) =>
    isReordered(group)
      ? [reorderedEndpoints(frontend, group, words)]
      : group.map((each) => differenceOf(each, words))
  );
}

/** The same endpoints at other numbers. */
function isReordered(group: readonly NotedElement[]): boolean {
  const sorted = (side: "found" | "wanted") => group.map((each) => each[side] ?? "?").sort().join();
  return group.length > 1 && sorted("wanted") === sorted("found") &&
    group.every(({ wanted, found }) => wanted !== undefined && found !== undefined);
}

function reorderedEndpoints(
  frontend: string,
  group: readonly NotedElement[],
  { container }: ContainerTexts,
): DataPlaneDifference {
  const [{ owner } = { owner: undefined }] = group;
  const text = (side: "found" | "wanted") =>
    group.map((each) => elementText(each.key, each[side])).join("\n");
  return {
    object: "elements",
    name: `${container} ${frontend}`,
    kind: "reordered",
    ...(owner !== undefined && { key: owner }),
    wanted: text("wanted"),
    found: text("found"),
  };
}

function differenceOf(
  { key, owner, wanted, found }: NotedElement,
  { container, kind }: ContainerTexts,
): DataPlaneDifference {
  return {
    object: `${kind} element`,
    name: `${container} ${key}`,
    kind: wanted === undefined ? "extra" : found === undefined ? "missing" : "altered",
    ...(owner !== undefined && { key: owner }),
    ...(wanted !== undefined && { wanted: elementText(key, wanted) }),
    ...(found !== undefined && { found: elementText(key, found) }),
  };
}

function elementText(key: string, value = ""): string {
  return value === "" ? key : `${key} : ${value}`;
}

function elementOf(container: ContainerName, key: string, value: string): Element {
  return { container, key, ...(value !== "" && { value }) };
}

/** The address and port, or node port, that an element is for. */
function frontendOf(container: ContainerName, key: string): string {
  if (NUMBERED.has(container) || container === "source-ranges") {
    return key.slice(0, key.lastIndexOf(" . "));
  }
  return key;
}
