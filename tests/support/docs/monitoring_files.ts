/**
 * The files of `deploy/monitoring` that are made from other ones.
 *
 * @module
 */

/** The rule file `alerts.yaml` as an object of the Prometheus Operator. */
export function prometheusRule(alerts: string): string {
  const rules = alerts.slice(alerts.indexOf("\ngroups:") + 1);
  return `# The rules of alerts.yaml for the Prometheus Operator; made from it by \`deno task docs\`.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: kube-relay
  namespace: monitoring
  # kube-prometheus-stack selects rules by the name of its release.
  labels: { release: kube-prometheus-stack }
spec:
${rules.trimEnd().replaceAll(/^(?=.)/gm, "  ")}
`;
}
