"""NetworkX: a graph of Python's dictionaries."""
import networkx

graph = networkx.Graph()
count = 80_000
for i in range(count):
    graph.add_edge(i, i * 7919 % count, weight=i % 101)
    graph.add_edge(i, i * 48271 % count, weight=i % 97)
    graph.add_edge(i, (i + 1) % count, weight=103)
print(graph.number_of_nodes(), graph.number_of_edges())
ranks = networkx.pagerank(graph, max_iter=20, tol=1e-4)
print(sorted(ranks, key=lambda node: (-round(ranks[node], 9), node))[:50])
length = networkx.single_source_dijkstra_path_length(graph, 0)
print(sum(length.values()), max(length.values()))
print(sum(len(part) for part in networkx.connected_components(graph)))
