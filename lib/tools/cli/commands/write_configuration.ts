import type { Dependencies } from "../../../app/dependencies.ts";
import { stringify } from "@std/yaml";
import { effectiveConfiguration } from "../../../config/configuration.ts";
import { encodeConfiguration } from "../../../config/encode_configuration.ts";
import type { LoadedConfiguration } from "../../../config/load.ts";
import { messageOf } from "../../../log/message_of.ts";
import { writeFile } from "../../../os/write_file.ts";
import { namedMode } from "../../../app/run/choose_mode.ts";
import { type CommandContext, logNotices } from "./command.ts";

/** Files for kube-proxy, but not for Deno, which opens no device without full access. */
const STANDARD_OUTPUT: readonly string[] = ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"];

/** Writes the effective configuration. Asks neither the machine nor a cluster. */
export async function writeConfigurationVerb(
  { print }: Dependencies,
  context: CommandContext,
): Promise<number> {
  const { flags, operands: [file] = [], configuration } = context;
  const path = flags["write-config-to"] ?? file!;
  logNotices(context);
  const text = configurationText(configuration);
  if (STANDARD_OUTPUT.includes(path)) {
    print(text);
    return 0;
  }
  try {
    await writeFile(path, "public", text);
  } catch (error) {
    const reason = messageOf(error);
    throw new Error(`Cannot write the configuration to '${path}': ${reason}`);
  }
  print(`Configuration written to ${path}\n`);
  return 0;
}

/** The text of the file. Without a mode it names `iptables`, as upstream does. */
export function configurationText({ proxy, mode }: LoadedConfiguration): string {
  const written = namedMode(mode);
  const effective = written === "auto" ? proxy : effectiveConfiguration(proxy, written);
  return stringify(encodeConfiguration(effective, written), {
    sortKeys: true,
    useAnchors: false,
    lineWidth: -1,
  });
}
