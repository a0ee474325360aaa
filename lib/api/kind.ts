/**
 * Everything that kube-relay knows about a kind of API object.
 *
 * @module
 */
import type * as v from "valibot";

declare const OBJECT: unique symbol;

/**
 * One kind of the API. The reduction of objects, the validation of manifests, dumps, informers and the
 * labels of metrics derive from it; nothing else names a kind.
 */
export interface KindSpec<T extends KubeObject = KubeObject> {
  readonly kind: string;
  /** Empty for the core group. */
  readonly group: string;
  /** Versions that manifests may have; the first one is asked of an API server. */
  readonly versions: readonly [string, ...string[]];
  /** Name of the resource, e.g. `endpointslices`. */
  readonly plural: string;
  readonly namespaced: boolean;
  readonly schema: v.GenericSchema;
  /**
   * Whether objects of this kind restrict others, so that the absence of one permits what it denies.
   * An invalid manifest is then used without its invalid fields, unless a valid version is known.
   */
  readonly restricts?: true;
  /**
   * Completes a manifest as an API server would: defaults, and rules across fields. Also called for
   * problems of a manifest whose values have the right types and are invalid otherwise; must not throw.
   */
  readonly complete?: (manifest: never, report: ManifestReport) => unknown;
  /** Only a type: the objects of this kind. */
  readonly [OBJECT]?: T;
}

/** The objects of a kind, as far as they are read. */
export type ObjectOf<Kind> = Kind extends KindSpec<infer T> ? T : never;

/** A manifest of a kind after its schema was checked. */
type ManifestOf<Schema extends v.GenericSchema> = v.InferOutput<Schema>;

/** Collects the faults of a manifest. */
export interface ManifestReport {
  /** The object is refused. */
  error(problem: ManifestFieldProblem): void;
  /** The object is used. */
  warn(problem: ManifestFieldProblem): void;
}

/** A fault in one field; the message is the end of a sentence. */
export interface ManifestFieldProblem {
  readonly path: readonly (string | number)[];
  readonly value?: unknown;
  readonly message: string;
}

/** The fields that every object has. */
export interface KubeObject {
  readonly metadata: ObjectMeta;
}

/** Metadata, as far as it is read. */
export interface ObjectMeta {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly deletionTimestamp?: string;
  readonly creationTimestamp?: string;
}

/** Describes a kind; the type of its objects follows from the schema. */
export function defineKind<Schema extends v.GenericSchema>(
  spec: Omit<KindSpec, "schema" | "complete" | typeof OBJECT> & {
    readonly schema: Schema;
    readonly complete?: (
      manifest: ManifestOf<Schema>,
      report: ManifestReport,
    ) => ManifestOf<Schema>;
  },
): KindSpec<ReducedTo<Schema>> {
  return spec as KindSpec<ReducedTo<Schema>>;
}

/** `namespace/name`, or the name alone for objects of the cluster. */
export function objectKey(object: KubeObject): string {
  const { namespace, name } = object.metadata;
  return namespace === undefined ? name : `${namespace}/${name}`;
}

/** The path of the collection at an API server. @param namespace Absent = all namespaces. */
export function collectionPath(
  { group, versions, plural }: Pick<KindSpec, "group" | "versions" | "plural">,
  namespace?: string,
): string {
  const inner = namespace === undefined ? "" : `/namespaces/${namespace}`;
  return `${group === "" ? "/api" : `/apis/${group}`}/${versions[0]}${inner}/${plural}`;
}

/** The `apiVersion`s of manifests of a kind. */
export function apiVersionsOf({ group, versions }: KindSpec): readonly string[] {
  return versions.map((version) => group === "" ? version : `${group}/${version}`);
}

type ReducedTo<Schema extends v.GenericSchema> = Extract<
  Reduced<v.InferOutput<Schema>>,
  KubeObject
>;

/** Values as they are kept: an absent field is absent, and words of a server may be any text. */
type Reduced<T> = T extends string ? string
  : T extends number ? number
  : T extends boolean ? boolean
  : T extends readonly (infer Item)[] ? readonly Reduced<Item>[]
  : T extends object ?
      & { readonly [K in keyof T as Absent<T[K]> extends never ? K : never]: Reduced<T[K]> }
      & {
        readonly [K in keyof T as Absent<T[K]> extends never ? never : K]?: Reduced<
          NonNullable<T[K]>
        >;
      }
  : never;

type Absent<T> = Extract<T, null | undefined>;
