// deno-lint-ignore-file no-console -- the line is what its starter waits for
/**
 * Plays many kube-relays: for each a connection of its own, and the kinds that a node follows. Says that it
 * is ready when all have their objects, and ends with its standard input. Arguments: a kubeconfig, and
 * the number of nodes, whose Nodes are node-0 and so on.
 */
import { serviceSubscriptions } from "../../../lib/app/service/service_subscriptions.ts";
import { ApiSource } from "../../../lib/kube/api_source.ts";
import { InformerSet } from "../../../lib/kube/informer_set.ts";
import { loadKubeAuth } from "../../../lib/kube/kubeconfig.ts";
import { SILENT_LOGGER as logger } from "../../../lib/log/silent_logger.ts";
import { systemClock as clock } from "../../../lib/os/clock.ts";
import { eventually } from "../../support/eventually.ts";

const [kubeconfig = "", count] = Deno.args;
const auth = await loadKubeAuth({ clock, logger }, { kubeconfig, env: () => undefined });
const nodes = Array.from({ length: Number(count) }, (_, index) => {
  const informers = new InformerSet();
  for (const [spec, options] of serviceSubscriptions(`node-${index}`, false)) {
    informers.subscribe(spec, options);
  }
  const source = new ApiSource({ clock, logger, auth, random: Math.random }, { informers });
  void source.run(new AbortController().signal);
  return informers;
});
await eventually("every node has its objects", () => nodes.every((each) => each.synced()), {
  deadlineMs: 300_000,
});
console.log(JSON.stringify({ url: auth.server }));
for await (const _ of Deno.stdin.readable);
Deno.exit(0);
