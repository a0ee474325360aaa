/**
 * The annotations of Services by kube-router's names, besides those of its schedulers. docs/annotations.md
 * has all of kube-router's annotations, with what becomes of each.
 *
 * @module
 */

/** `true` makes the external traffic policy Local. */
export const LOCAL_ANNOTATION = "kube-router.io/service.local";

/** With any value, nodes neither serve nor announce the load balancer addresses. */
export const SKIP_LOAD_BALANCER_IPS_ANNOTATION = "kube-router.io/service.skiplbips";

/** Switches for what is announced. */
export const ADVERTISE_ANNOTATIONS = {
  clusterIps: "kube-router.io/service.advertise.clusterip",
  externalIps: "kube-router.io/service.advertise.externalip",
  loadBalancerIps: "kube-router.io/service.advertise.loadbalancerip",
} as const;

/** Says what is wrong with a value, as a whole sentence without a full stop. */
type Remark = (value: string) => string | undefined;

const isSwitch: Remark = (value) =>
  parseSwitch(value) === undefined
    ? "The annotation is not used: it has to be true or false"
    : undefined;
const isAlwaysSo: Remark = () =>
  "The annotation changes nothing: a pod always reaches itself through each address of its " +
  "Service, and sees an address of the node";

const REMARKS: Readonly<Record<string, Remark>> = {
  [LOCAL_ANNOTATION]: isSwitch,
  [ADVERTISE_ANNOTATIONS.clusterIps]: isSwitch,
  [ADVERTISE_ANNOTATIONS.externalIps]: isSwitch,
  [ADVERTISE_ANNOTATIONS.loadBalancerIps]: isSwitch,
  "kube-router.io/service.hairpin": isAlwaysSo,
  "kube-router.io/service.hairpin.externalips": isAlwaysSo,
};

/** Those that decide what is served, or are reported. */
export const KUBE_ROUTER_ANNOTATIONS: readonly string[] = [
  SKIP_LOAD_BALANCER_IPS_ANNOTATION,
  ...Object.keys(REMARKS),
];

/** Reads a switch as Go's `strconv.ParseBool` does; `undefined` = it is none. */
export function parseSwitch(value: string): boolean | undefined {
  if (/^(?:1|[tT]|true|TRUE|True)$/.test(value)) return true;
  return /^(?:0|[fF]|false|FALSE|False)$/.test(value) ? false : undefined;
}

/** Whether the Service or its annotation asks for external traffic policy Local. */
export function isExternalLocal(
  { metadata: { annotations }, spec: { externalTrafficPolicy } }: {
    readonly metadata: { readonly annotations?: Readonly<Record<string, string>> | undefined };
    readonly spec: { readonly externalTrafficPolicy?: string | undefined };
  },
): boolean {
  return externalTrafficPolicy === "Local" ||
    parseSwitch(annotations?.[LOCAL_ANNOTATION] ?? "") === true;
}

/** The annotations of a Service that are not used or change nothing, with the reason. */
export function* kubeRouterRemarks(
  annotations: Readonly<Record<string, string>> | undefined,
): Generator<readonly [name: string, value: string, remark: string]> {
  if (annotations === undefined) return;
  for (const [name, remark] of Object.entries(REMARKS)) {
    const value = annotations[name];
    const text = value === undefined ? undefined : remark(value);
    if (text !== undefined) yield [name, value!, text];
  }
}
