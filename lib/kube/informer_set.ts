/**
 * The subscriptions to objects. Controllers subscribe; a source (API server or manifests) lists and
 * watches only what has subscribers.
 *
 * @module
 */
import { type KindSpec, type KubeObject, objectKey } from "../api/kind.ts";
import { Informer, type InformerHandler } from "./informer.ts";

/** Selects objects of a kind, in the API's syntax. */
export interface ListOptions {
  /** @default {all namespaces} */
  readonly namespace?: string;
  /** Terms `!label`, `label` or `label=value`, separated by commas. */
  readonly labelSelector?: string;
  /** One term `path=value` or `path!=value`. */
  readonly fieldSelector?: string;
  /**
   * Whether an API server may not know the field selector: it is dropped after an answer of 400.
   */
  readonly fieldSelectorMayBeUnknown?: boolean;
  /** HTTP statuses of a list that mean that no such objects exist. @default {none} */
  readonly optionalOn?: readonly number[];
  /** Whether many clusters do not have the kind: an answer of 404 is no problem. @default {false} */
  readonly isOftenAbsent?: boolean;
  /** They are listed once this resolves. @default {at once} */
  readonly after?: Promise<void>;
  /** Only follow these objects while the API server does not have those of another kind. */
  readonly onlyWithout?: KindSpec;
}

/** Of kinds whose definitions a cluster may lack. */
export const WITHOUT_DEFINITIONS: ListOptions = { optionalOn: [404] };

/** The followed objects of a kind. */
export interface Subscription<T extends KubeObject = KubeObject> {
  readonly spec: KindSpec<T>;
  readonly options: ListOptions;
  readonly informer: Informer<T>;
}

/** Selects the object of this name. */
export function named(name: string): Pick<ListOptions, "fieldSelector"> {
  return { fieldSelector: `metadata.name=${name.replace(/[\\,=]/g, "\\$&")}` };
}

/** All subscriptions of a run. */
export class InformerSet implements Iterable<Subscription> {
  readonly #subscriptions: Subscription[] = [];

  /**
   * Follows objects of a kind. Equal selectors of a kind share a subscription: a second handler
   * gets the known objects. Without a handler the objects can only be looked up.
   */
  subscribe<T extends KubeObject>(
    spec: KindSpec<T>,
    options: ListOptions = {},
    handler?: InformerHandler<T>,
  ): Informer<T> {
    const known = this.#subscriptions.find((other) =>
      other.spec === spec && haveSameSelectors(other.options, options)
    );
    if (known) {
      const informer = known.informer as Informer<KubeObject> as unknown as Informer<T>;
      if (handler) informer.addHandler(handler);
      return informer;
    }
    const informer = new Informer<T>(...(handler ? [handler] : []));
    this.#subscriptions.push({ spec, options, informer } as unknown as Subscription);
    return informer;
  }

  /**
   * Returns the first subscription to a kind. Throws a TypeError if there is none, which is a bug.
   */
  of<T extends KubeObject>(spec: KindSpec<T>): Informer<T> {
    const found = this.#subscriptions.find((subscription) => subscription.spec === spec);
    if (!found) throw new TypeError(`No controller has subscribed to kind '${spec.kind}'`);
    return found.informer as unknown as Informer<T>;
  }

  /** The followed kinds, by name. */
  get kinds(): ReadonlyMap<string, KindSpec> {
    return new Map(this.#subscriptions.map(({ spec }) => [spec.kind, spec]));
  }

  /** Whether any subscription includes an object. */
  isFollowed(spec: KindSpec, object: KubeObject): boolean {
    return this.#subscriptions.some((subscription) =>
      subscription.spec === spec && isSelected(object, subscription.options)
    );
  }

  /** Whether all objects of these kinds, or of every kind, have been delivered once. */
  synced(specs?: readonly KindSpec[]): boolean {
    return this.#subscriptions.every(({ spec, informer }) =>
      informer.synced || specs !== undefined && !specs.includes(spec)
    );
  }

  [Symbol.iterator](): Iterator<Subscription> {
    return this.#subscriptions.values();
  }
}

/** Whether selectors match an object. */
export function isSelected(
  object: KubeObject,
  { labelSelector = "", fieldSelector = "", namespace }: ListOptions,
): boolean {
  if (namespace !== undefined && object.metadata.namespace !== namespace) return false;
  const { labels = {} } = object.metadata;
  const hasLabels = labelSelector.split(",").filter((term) => term !== "").every((term) => {
    const [name = "", value] = term.replace(/^!/, "").split("=");
    if (term.startsWith("!")) return !Object.hasOwn(labels, name);
    return Object.hasOwn(labels, name) && (value === undefined || labels[name] === value);
  });
  return hasLabels && hasField(object, fieldSelector);
}

function hasField(object: KubeObject, selector: string): boolean {
  const [, path, not, escaped] = /^([\w.]+)(!?)=(.*)$/s.exec(selector) ?? [];
  if (path === undefined) return true;
  let value: unknown = object;
  for (const name of path.split(".")) {
    value = (value as Record<string, unknown> | undefined)?.[name];
  }
  // An absent field counts as empty text.
  const isEqual = String(value ?? "") === escaped!.replace(/\\(.)/g, "$1");
  return isEqual !== (not === "!");
}

function haveSameSelectors(left: ListOptions, right: ListOptions): boolean {
  return left.labelSelector === right.labelSelector && left.fieldSelector === right.fieldSelector &&
    left.namespace === right.namespace;
}

/** Returns the identity of an object among all kinds, e.g. `Service default/web`. */
export function objectId({ kind }: KindSpec, object: KubeObject): string {
  return `${kind} ${objectKey(object)}`;
}
