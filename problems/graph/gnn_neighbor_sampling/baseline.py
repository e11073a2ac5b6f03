"""Neighbour sampling on a partitioned graph: per hop ask the owners, order the answers, find new nodes."""

import torch
import torch.distributed as dist


@torch.no_grad()
def solution(
    seed_nodes: torch.Tensor,
    fanouts: list[int],
    local_adj_row_ptr: torch.Tensor,
    local_adj_col: torch.Tensor,
    node_to_rank: torch.Tensor,
    group: dist.ProcessGroup | None = None,
    replace: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """seed_nodes [s] distinct, local_adj_row_ptr [Nn + 1], local_adj_col [E_r], node_to_rank [Nn], all int64.

    "Sampling" takes the first min(fanout, degree) neighbours, all of them for a negative fanout; `replace` is
    ignored. Returns node (seeds first, then as discovered), row and col (places in node of each edge's
    neighbour and of the node it was sampled for) and edge (its position in the owner's column array). A rank
    with an empty frontier goes on asking for nothing, so that ranks may run dry at different hops.
    """
    place = torch.full_like(node_to_rank, -1)
    place[seed_nodes] = torch.arange(len(seed_nodes), device=place.device)
    first_seen = torch.full_like(node_to_rank, torch.iinfo(torch.int64).max)
    nodes, rows, cols, edges = [seed_nodes], [], [], []
    found, frontier = len(seed_nodes), seed_nodes
    for fanout in fanouts:
        neighbours, positions, taken = _sample(frontier, fanout, local_adj_row_ptr, local_adj_col, node_to_rank, group)
        sources = place[frontier].repeat_interleave(taken, output_size=len(neighbours))
        frontier = _first_appearances(neighbours[place[neighbours] < 0], first_seen)
        place[frontier] = torch.arange(found, found + len(frontier), device=place.device)
        found += len(frontier)
        nodes.append(frontier)
        rows.append(place[neighbours])
        cols.append(sources)
        edges.append(positions)
    return torch.cat(nodes), torch.cat(rows), torch.cat(cols), torch.cat(edges)


def _sample(
    frontier: torch.Tensor,
    fanout: int,
    row_ptr: torch.Tensor,
    col: torch.Tensor,
    node_to_rank: torch.Tensor,
    group: dist.ProcessGroup | None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """From the owners, in frontier order: neighbours [E], edge positions [E], edges per frontier node [F]."""
    owner = node_to_rank[frontier]
    by_owner = owner.argsort(stable=True)
    asked = torch.bincount(owner, minlength=dist.get_world_size(group))
    answering = torch.empty_like(asked)
    dist.all_to_all_single(answering, asked, group=group)
    to_owner, to_answer = torch.stack([asked, answering]).tolist()

    requests = frontier.new_empty(sum(to_answer))
    dist.all_to_all_single(requests, frontier[by_owner], to_answer, to_owner, group=group)
    start = row_ptr[requests]
    take = row_ptr[requests + 1] - start
    if fanout >= 0:
        take = take.clamp(max=fanout)
    arrived_take = torch.empty_like(frontier)
    dist.all_to_all_single(arrived_take, take, to_owner, to_answer, group=group)
    leaving, arriving = torch.stack([_sums(take, to_answer), _sums(arrived_take, to_owner)]).tolist()

    positions = _runs(start, take, sum(leaving))
    answers = torch.stack([col[positions], positions], dim=1)
    arrived = answers.new_empty(sum(arriving), 2)
    dist.all_to_all_single(arrived, answers, arriving, leaving, group=group)

    taken, begin = torch.empty_like(frontier), torch.empty_like(frontier)
    taken[by_owner] = arrived_take
    begin[by_owner] = arrived_take.cumsum(0) - arrived_take
    neighbours, edges = arrived[_runs(begin, taken, len(arrived))].T.contiguous()
    return neighbours, edges, taken


def _sums(values: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    return torch.stack([part.sum() for part in values.split(lengths)])


def _runs(start: torch.Tensor, length: torch.Tensor, total: int) -> torch.Tensor:
    """start[0], start[0] + 1, .. (length[0] of them), start[1], ..: [total] int64."""
    shift = start - (length.cumsum(0) - length)
    return shift.repeat_interleave(length, output_size=total) + torch.arange(total, device=start.device)


def _first_appearances(candidates: torch.Tensor, first_seen: torch.Tensor) -> torch.Tensor:
    """Each candidate once, in order of first appearance. Writes to first_seen [Nn] at the candidates' ids."""
    order = torch.arange(len(candidates), device=candidates.device)
    first_seen.scatter_reduce_(0, candidates, order, "amin")
    return candidates[first_seen[candidates] == order]
