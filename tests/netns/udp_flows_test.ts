/**
 * UDP flows that are older than their Service, or than its endpoint, in the modes that need no IPVS.
 */
import { ADDRESSES } from "../support/builders/address_plan.ts";
import { netnsRequirements } from "../support/stages/netns.ts";
import { RelayScene } from "../support/stages/relay_scene.ts";
import { isMissing, program } from "../support/requirement.ts";
import { RULE_MODES } from "../support/stages/rule_modes.ts";
import { checkSendersFollowTheirService } from "../support/drivers/udp_senders.ts";

for (const { name, args, prepare, requirements } of RULE_MODES) {
  Deno.test({
    name: `${name} serves UDP clients whose sockets are older than the Service`,
    ignore: isMissing(`UDP flows in ${name}`, [...requirements(), program("conntrack")]),
    async fn(t) {
      await using scene = await RelayScene.create();
      await prepare(scene.cluster.node);
      await scene.write([], []);
      await using relay = scene.start(args);
      await relay.settled();
      await checkSendersFollowTheirService(scene, t);
    },
  });
}

const RANGES = `--service-cidr=${ADDRESSES.IPv4.serviceCidr},${ADDRESSES.IPv6.serviceCidr}`;

for (const addressMode of ["each", "anyip"] as const) {
  Deno.test({
    name:
      `userspace mode (${addressMode}) serves UDP clients whose sockets are older than the Service`,
    ignore: isMissing(`UDP flows in userspace mode (${addressMode})`, netnsRequirements()),
    async fn(t) {
      await using scene = await RelayScene.create();
      await scene.write([], []);
      await using relay = scene.start([`--address-mode=${addressMode}`, RANGES]);
      await relay.settled();
      await checkSendersFollowTheirService(scene, t);
    },
  });
}
