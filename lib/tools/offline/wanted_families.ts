import { IP_FAMILIES, type IpFamily } from "../../net/ip_address.ts";

/** The IP families that `--family` selects. */
export function wantedFamilies(word: string | undefined): readonly IpFamily[] {
  const wanted = word?.toLowerCase();
  return IP_FAMILIES.filter((family) => wanted === undefined || family.toLowerCase() === wanted);
}
